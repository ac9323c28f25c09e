"""ClipFL: scores and pruning in numbers, and through the engine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from imperfed.algorithms.clipfl import ClipFL, flagged, pruned
from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.core.exchange import Updates
from imperfed.core.federation import Trusted
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, world

ROUNDS = torch.tensor([[0.60, 0.55, 0.20, 0.58, 0.30], [0.62, 0.57, 0.25, 0.35, 0.50], [0.66, 0.61, 0.22, 0.60, 0.41]])


def test_scores_of_five_sites() -> None:
    score = sum(flagged(row, 0.4, torch.arange(5)).float() for row in ROUNDS)
    assert score.tolist() == [0, 0, 3, 1, 2]
    assert pruned(score, torch.full((5,), 3.0), 0.4).nonzero().flatten().tolist() == [2, 4]


def test_scores_are_per_round_seen_and_ties_go_to_the_lower_site() -> None:
    assert pruned(torch.tensor([2.0, 1, 0, 0]), torch.tensor([4.0, 1, 0, 4]), 0.25).tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert flagged(torch.tensor([0.5, 0.5, 0.9]), 0.3, torch.tensor([2, 0, 1])).tolist() == [False, True, False]


def test_shares_that_are_whole_numbers_of_sites_are_not_rounded() -> None:
    assert flagged(torch.rand(20), 0.55, torch.arange(20)).sum() == 11  # 0.55 x 20 is 11.000000000000002 in floats
    assert pruned(torch.rand(100), torch.ones(100), 0.29).sum() == 29  # 0.29 x 100 is 28.999999999999996


def test_accuracies_are_those_of_each_whole_model_on_the_servers_rows() -> None:
    """A model whose weights and buffers are added to the inputs of four rows, all of class 0."""
    trusted = Trusted(torch.tensor([[0.0, 1], [0, 3], [0, 5], [0, 7]]), Exact(torch.zeros(4, dtype=torch.int64), 2))
    net = SimpleNamespace(at=lambda w, buffers, x: x + torch.cat([w + 2 * buffers, torch.zeros(1)]))
    w, buffers = torch.tensor([[2.0], [0.0], [0.0]]), torch.tensor([[0.0], [2.0], [3.0]])
    updates = Updates((0, 1, 2), torch.tensor([1.0, 2, 3]), {"w": w, "buffers": buffers})
    context = SimpleNamespace(net=net, trusted=trusted, notes=[])
    found = ClipFL().accuracies(updates, context)  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx([0.25, 0.5, 0.75])


def test_a_site_with_wrong_labels_is_pruned() -> None:
    data = world(Exact, (40, 60, 50, 44))
    y = data[0].labels.values.clone()
    mine = slice(data[0].starts[1], data[0].starts[2])
    y[mine] = (y[mine] + 1) % 4
    noisy = replace(data[0], labels=Exact(y, 4)), data[1]
    method = ClipFL(scoring=2, noisy=0.25)
    e = engine(method, CROSS_ENTROPY, noisy, Local(steps=15, batch=16, lr=0.1), rounds=3).go()
    assert e.state.server["score"].tolist() == [0, 2, 0, 0]
    assert e.state.server["seen"].tolist() == [2, 2, 2, 2]
    for answers in e.seen:
        assert answers.who == (0, 1, 2, 3)
    n, w = e.seen[2].n, e.seen[2]["w"]
    others = torch.tensor([0, 2, 3])
    torch.testing.assert_close(e.state.server["w"], n[others] / n[others].sum() @ w[others])
    assert min(scores["accuracy"][0] for scores in e.reports[-1].personal.values()) > 0.9


def test_flagged_sites_are_merged_if_asked() -> None:
    data = world(Exact)
    e = engine(ClipFL(merge_flagged=True), CROSS_ENTROPY, data, rounds=1).go()
    torch.testing.assert_close(e.state.server["w"], e.seen[0].by_size() @ e.seen[0]["w"])
    assert e.state.server["score"].sum() == 2
