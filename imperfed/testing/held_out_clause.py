"""The clause about rows that sites hold out: the best round by them is the same however a run is carried out."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out
from imperfed.data.scale import Scale
from imperfed.testing.cases import Case
from imperfed.testing.clauses import Scene, start
from imperfed.testing.toy import Watched, differences, everything, world


def holding_out(case: Case) -> Scene:
    """Return a toy federation whose sites hold out a quarter of their rows."""
    data = hold_out(FederatedData(*world(case.kind), {}, Scale.none()), 0.25, data_seed=0)
    return data.federation, data.oracle


def the_best_round_is_found_again(case: Case) -> None:
    """Check that workers and a resumed run find the same best round, and that a run which ends there is the same."""

    def run(**settings: Any) -> Watched:
        return start(case, holding_out(case), **{"rounds": 3, "evaluate_every": 1} | settings)

    whole = run().go()
    best = whole.state.best
    assert best is not None
    with TemporaryDirectory() as folder:
        path = Path(folder, "last.safetensors")
        run(checkpoint_every=1).go(path, stop_after=2)
        resumed = run()
        resumed.state.restore(path)
    for other in (resumed.go(), run(workers=2).go()):
        assert other.state.best is not None
        assert (other.state.best.round, other.state.best.score) == (best.round, best.score)
        assert not differences(other.state.best.state, best.state)
    whole.return_to_best()
    assert not differences(everything(whole), everything(run(rounds=best.round).go()))
