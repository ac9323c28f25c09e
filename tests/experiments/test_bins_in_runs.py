"""A model with bins is an ordinary one: the same with several workers, and after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from imperfed.core.batch import Tree
from imperfed.core.labels import Exact
from imperfed.experiments.experiment import Experiment
from imperfed.testing.toy import differences
from tests.support.rehearsal import raw, scaled, settled

PLE = {"model.name": "mlp-ple", "model.bins": 4, "model.hidden": 8}


def trained(workers: int, checkpoint: Path | None = None, stop: Callable[[int], bool] = lambda round: False) -> Tree:
    """Train to the end, or until a round; go on from a checkpoint if there is one."""
    config = settled("fedper+cross-entropy", **PLE, **{"rounds.workers": workers})
    with closing(Experiment(config, scaled(raw(Exact)))) as experiment:
        engine = experiment.engine
        if checkpoint is not None and checkpoint.exists():
            engine.state.restore(checkpoint)
        engine.run(lambda report: None, lambda: stop(engine.state.round), checkpoint)
        return {name: t.clone() for name, t in engine.state.flat().items()}


@pytest.fixture(scope="module")
def whole() -> Tree:
    return trained(workers=1)


def test_workers_change_nothing(whole: Tree) -> None:
    assert not differences(whole, trained(workers=2))


def test_a_resumed_run_ends_like_an_uninterrupted_one(whole: Tree, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "last.safetensors"
    partly = trained(1, checkpoint, lambda round: round >= 1)
    assert differences(whole, partly)
    assert not differences(whole, trained(1, checkpoint))
