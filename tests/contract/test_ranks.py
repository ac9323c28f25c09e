"""Several ranks compute what one process does, for every method of the catalogue; two ranks serve the whole file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from imperfed.core.errors import ImperfedError
from imperfed.engine.backends.distributed.distributed_backend import DistributedBackend
from imperfed.engine.backends.distributed.group import RankGroup
from imperfed.engine.engine import MakeBackend
from imperfed.experiments.device import Hardware
from imperfed.experiments.ranks import PLACE, RankHardware, start_ranks, stop_ranks
from imperfed.testing.cases import Case, cases
from imperfed.testing.clauses import reference, start
from imperfed.testing.held_out_clause import holding_out
from imperfed.testing.toy import Watched, differences, everything
from tests.support.broken_rank import BrokenPlace

ROUNDING = 1e-6


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    """Return two ranks, which live as long as the tests of this file."""
    before = {name: os.environ.get(name) for name in PLACE}
    yield start_ranks(2)
    stop_ranks()
    assert {name: os.environ.get(name) for name in PLACE} == before


@pytest.fixture(scope="module")
def ranks(group: RankGroup) -> MakeBackend:
    """Return what makes a backend over these ranks."""
    place = RankHardware(Hardware(torch.device("cpu"), "float32"))
    return lambda population, on_duty, workers: DistributedBackend(population, on_duty, workers, group, place)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_ranks_make_no_difference(case: Case, ranks: MakeBackend, tmp_path: Path) -> None:
    """Each round begins with the state of one process: some methods make a last bit large within a few steps."""
    checkpoint = tmp_path / "state.safetensors"
    alone, first = start(case).go(checkpoint, stop_after=1), start(case, make_backend=ranks).go(stop_after=1)
    assert isinstance(first.backend, DistributedBackend)
    assert not differences(everything(first), everything(alone), ROUNDING)
    second = start(case, make_backend=ranks)
    second.state.restore(checkpoint)
    state, losses = reference(case)
    assert not differences(everything(second.go()), state, ROUNDING)
    for report, told in zip(first.reports + second.reports, losses, strict=True):
        assert report.losses == pytest.approx(told, rel=1e-5)


def test_a_rank_that_cannot_begin_says_why_and_is_there_for_the_next_run(group: RankGroup, ranks: MakeBackend) -> None:
    case = next(case for case in cases() if case.trains)
    with pytest.raises(ImperfedError, match=r"^rank 1: there is no device for this rank$"):
        start(case, make_backend=lambda *given: DistributedBackend(*given, group, BrokenPlace()))
    assert start(case, make_backend=ranks).go().state.round == 2


def last_of(case: Case, make_backend: MakeBackend | None = None) -> Watched:
    """Return the end of a run whose sites hold rows out, with labels and figures."""
    how = {} if make_backend is None else {"make_backend": make_backend}
    e = start(case, holding_out(case), rounds=3, evaluate_every=1, **how)
    e.run(e.reports.append, lambda: False, None)
    return e


@pytest.mark.parametrize("case", [next(case for case in cases() if case.objective.name == "lcp")], ids=str)
def test_labels_figures_and_the_best_round_are_those_of_one_process(case: Case, ranks: MakeBackend) -> None:
    alone, apart = last_of(case), last_of(case, ranks)
    for e in (alone, apart):
        e.return_to_best()
    assert (alone.state.best.round, alone.state.best.score) == (apart.state.best.round, apart.state.best.score)  # type: ignore[union-attr]
    assert alone.evaluate() == apart.evaluate()
    labels = [e.inferred_labels() for e in (alone, apart)]
    assert labels[0] is not None
    assert labels[1] is not None
    assert torch.allclose(labels[0], labels[1], atol=ROUNDING)
    for e in (alone, apart):
        e.close()
