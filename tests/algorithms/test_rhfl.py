"""RHFL: its loss, its confidences and what sites agree on, in numbers; and that noisy sites learn from the others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.local_only import LocalOnly
from imperfed.algorithms.rhfl import RHFL, confidences
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, world

Z = torch.tensor([[1, 2, 0.5, -1], [0.2, -0.3, 1.5, 0.7]], dtype=torch.float64)
FOUR = torch.tensor([[1, 0, -1], [0.5, 0.5, 0], [0, 1, 0], [2, 0, 0]], dtype=torch.float64)


def test_symmetric_cross_entropy() -> None:
    y = torch.tensor([1, 3])
    assert RHFL(ce=0).symmetric_ce(Z, y).tolist() == pytest.approx([3.597006, 7.017377], abs=1e-5)
    assert RHFL().symmetric_ce(Z, y).mean().item() == pytest.approx(5.403704, abs=1e-5)


def test_confidences_of_four_sites() -> None:
    before, now = torch.tensor([1, 0.9, 1.2, 0.8]), torch.tensor([0.7, 0.8, 0.9, 0.75])
    assert confidences(before, now, 0.5).tolist() == pytest.approx([0.275384, 0.234860, 0.261970, 0.227786], abs=1e-6)
    worse = torch.tensor([0.4, 0.9, 1.2, 0.8])  # a loss that rises by as much counts alike
    assert confidences(worse, now, 0.5).tolist() == pytest.approx([0.275384, 0.234860, 0.261970, 0.227786], abs=1e-6)
    assert confidences(now, now, 0.5).tolist() == pytest.approx([1 / 3] * 4)
    assert confidences(now[:1], now[:1], 0.5).tolist() == [1]


def test_losses_are_compared_with_those_of_the_round_before() -> None:
    before, now = torch.tensor([1, 0.9, 1.2, 0.8]), torch.tensor([0.7, 0.8, 0.9, 0.75])
    server = {"loss": before, "W": torch.zeros(4), "known": torch.ones(4), "P": torch.zeros(4, 1, 2)}
    p = torch.rand(4, 1, 2)
    new = RHFL().weigh(server, Updates((0, 1, 2, 3), torch.ones(4), {"loss": now, "p": p}), None)  # type: ignore[arg-type]
    assert new["W"].tolist() == pytest.approx([0.275384, 0.234860, 0.261970, 0.227786], abs=1e-6)
    assert torch.equal(new["loss"], now)
    assert torch.equal(new["P"], p)
    first = server | {"loss": torch.zeros(4), "known": torch.zeros(4)}
    two = Updates((1, 3), torch.ones(2), {"loss": now[[1, 3]], "p": p[[1, 3]]})
    new = RHFL().weigh(first, two, None)  # type: ignore[arg-type]
    assert new["W"].tolist() == [0, 1, 0, 1]  # no loss has changed: 1 / (K - 1) of the two that answered
    assert new["known"].tolist() == [0, 1, 0, 1]


def test_a_site_tells_its_mean_loss_and_what_it_thinks_of_public_inputs() -> None:
    y = torch.tensor([1, 3])
    slices = [SimpleNamespace(x=Z[i : i + 1], labels=Exact(y[i : i + 1], 4)) for i in range(2)]
    site = SimpleNamespace(net=lambda x: x, down={"public": FOUR}, slices=lambda: slices)
    told = RHFL().predict(site)  # type: ignore[arg-type]
    assert told["loss"].item() == pytest.approx(5.403704, abs=1e-5)
    torch.testing.assert_close(told["p"], FOUR.softmax(-1))


def test_what_site_0_learns_from_the_others() -> None:
    W = torch.tensor([0.275384, 0.234860, 0.261970, 0.227786], dtype=torch.float64)
    P = FOUR.softmax(-1).unsqueeze(1)  # four sites, one public input
    server = {"W": W, "P": P, "known": torch.ones(4).double(), "public": torch.zeros(1, 2).double()}
    down = RHFL().send_all(server, 0)
    assert down["weight"].item() == pytest.approx(float(W[1:].sum()))
    net = SimpleNamespace(in_passing=lambda x: FOUR[:1])
    step = SimpleNamespace(down=down, net=net, batch=SimpleNamespace(draws={"from": torch.tensor(0.5)}))
    cross = RHFL().disagreement(step).item()  # type: ignore[arg-type]
    entropies = -(P[:, 0] * P[:, 0].log()).sum(-1)
    assert cross - float(W[1:] @ entropies[1:]) == pytest.approx(0.170076, abs=1e-6)  # KL = cross-entropy - entropy
    absent = server | {"known": torch.tensor([1.0, 1, 0, 1]).double()}
    assert RHFL().send_all(absent, 0)["weight"].item() == pytest.approx(float(W[1] + W[3]))  # it never answered


def test_public_inputs_are_needed() -> None:
    federation, oracle = world(Exact)
    bare = replace(federation, public=federation.public[:0]), oracle
    with pytest.raises(UsageError, match=r"has none; set split.public"):
        engine(RHFL(), CROSS_ENTROPY, bare, rounds=1)


def test_no_weight_leaves_a_site_and_a_window_wraps_around() -> None:
    e = engine(RHFL(public_batch=10), CROSS_ENTROPY, world(Exact), rounds=2).go()
    assert e.state.server["w"].numel() == 0
    assert {name: t.shape[1:] for name, t in e.seen[0].trees.items()} == {"p": (16, 4), "loss": ()}
    assert e.state.server["known"].tolist() == [1, 1, 1, 1]
    seen: list[Tensor] = []
    net = SimpleNamespace(in_passing=lambda x: seen.append(x) or torch.zeros(10, 4))
    down = {"public": torch.arange(16.0)[:, None], "agreed": torch.ones(16, 4)}
    step = SimpleNamespace(down=down, net=net, batch=SimpleNamespace(draws={"from": torch.tensor(0.75)}))
    RHFL(public_batch=10).disagreement(step)  # type: ignore[arg-type]
    assert seen[0].flatten().tolist() == [12, 13, 14, 15, 0, 1, 2, 3, 4, 5]


def test_a_site_with_wrong_labels_learns_from_the_others() -> None:
    federation, oracle = world(Exact, (60, 60, 60, 60))
    y = federation.labels.values.clone()
    y[:60] = torch.randint(4, (60,), generator=torch.Generator().manual_seed(0))
    public = torch.cat([x[:20] for x in oracle.test_x])
    noisy = replace(federation, labels=Exact(y, 4), public=public), oracle

    def worst(method: Algorithm) -> float:
        e = engine(method, CROSS_ENTROPY, noisy, Local(steps=15, batch=16, lr=0.05), rounds=4).go()
        return e.reports[-1].personal[0]["accuracy"][0]

    assert worst(RHFL()) > worst(LocalOnly()) + 0.1
