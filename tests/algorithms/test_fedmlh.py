"""FedMLH: its hash, targets and scores in the numbers of a worked example, and a step by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedmlh import FedMLH, bucket, murmur3
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Positive, Positives
from imperfed.core.network import Layout, Net, Network
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, world
from tests.support.transcription import double, near

SMALL = FedMLH(tables=2, buckets=3)
H = torch.tensor([[1, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0]])
"""h_0 = [0, 1, 0, 2] and h_1 = [1, 0, 2, 1]."""


def test_the_hash_is_murmur3() -> None:
    assert [murmur3(i, 0) for i in range(3)] == [593689054, -68075478, 1085422463]
    assert [murmur3(i, 1) for i in range(3)] == [2028806445, 1578231156, -610632052]
    buckets = [[bucket(c, r, 5) for c in range(8)] for r in range(4)]
    assert buckets[:2] == [[4, 2, 3, 0, 0, 4, 1, 1], [0, 1, 3, 3, 4, 2, 1, 1]]
    assert buckets[2:] == [[4, 4, 1, 1, 2, 0, 1, 4], [3, 3, 3, 2, 3, 0, 4, 3]]


def net() -> Net:
    network = SMALL.build(Network(nn.Linear(5, 2), nn.Linear(2, 4)))
    network.head.weight.copy_(H)
    return Net(network, Layout.of(network, SMALL.is_personal))


def test_the_head_holds_the_buckets_of_every_class() -> None:
    built = FedMLH(tables=3, buckets=5).build(Network(nn.Linear(5, 2), nn.Linear(2, 8)))
    at = built.head.weight.nonzero()[:, 1].view(8, 3)
    assert at.tolist() == [[bucket(c, r, 5) + 5 * r for r in range(3)] for c in range(8)]
    assert not built.head.weight.requires_grad
    assert built.head.bias is None
    tables = [table[0].weight for table in built.rep.tables]  # type: ignore[union-attr,index]
    assert not torch.equal(tables[0], tables[1])  # each drawn anew
    assert (FedMLH().tables, FedMLH().buckets) == (4, 500)


def test_scores_are_sums_of_logits() -> None:
    logits = torch.tensor([[2, -1, 0.5, -0.5, 1.5, 0]])
    assert (net().module.head(logits) / 2).tolist() == [[1.75, -0.75, 1, 1]]


@double()
@pytest.mark.parametrize("one_each", [False, True])
def test_a_step_learns_the_buckets_of_a_row_s_classes(one_each: bool) -> None:
    several = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.bool)
    labels = Positive(torch.tensor([2, 1]), 4) if one_each else Positives(several, 4)
    targets = [[1, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0]] if one_each else [[1, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1, 0]]
    x = torch.tensor([[1, -0.5, 0.3, 2, 0], [0.2, 1, -1, 0.4, 0.7]])
    one = net()
    z = one.features(x).detach().numpy()
    batch = Batch.of(x, labels, torch.ones(2), {}, {})
    loss, _ = SMALL.step_loss(SMALL.objective, Local().step(one, batch, {}, {}, {}, 0.1))  # type: ignore[arg-type]
    y = np.array(targets)
    cells = np.log1p(np.exp(-z)) * y + np.log1p(np.exp(z)) * (1 - y)
    assert loss.item() == pytest.approx(cells.mean(0).reshape(2, 3).mean(1).sum(), abs=1e-12)  # a mean per table


def test_sites_take_adams_steps_and_count_alike() -> None:
    labels = world(Positives, (5, 19))
    e = engine(SMALL, SMALL.objective, labels, Local(steps=1, batch=32, lr=0.01), rounds=1)  # type: ignore[arg-type]
    before = e.state.server["w"].clone()
    e.go()
    sent = e.seen[-1]["w"]
    moved = (sent - before)[sent != before].abs()
    assert moved.max().item() == pytest.approx(0.01, rel=1e-3)  # the first step of Adam: lr in every weight
    near(e.state.server["w"], sent.mean(0))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no other objective"):
        FedMLH(objective=CROSS_ENTROPY)
    with pytest.raises(UsageError, match=r"method\.buckets"):
        replace(FedMLH(), buckets=0)
    local = Local(optimizer="adam")
    with pytest.raises(UsageError, match="its steps are those of Adam already"):
        engine(FedMLH(), FedMLH().objective, world(Positives), local)  # type: ignore[arg-type]
