"""Pooled: one site with all rows makes the steps that all sites would have made."""

from __future__ import annotations

from dataclasses import replace

import torch

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.pooled import Pooled
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, world


def test_it_is_plain_training_on_the_rows_of_all_sites() -> None:
    data = world(Exact)
    sites = len(data[0].sites)
    assert sites > 1
    once = Local(steps=3, batch=8, lr=0.1)
    pooled = engine(Pooled(), CROSS_ENTROPY, data, once)
    plain = engine(FedAvg(), CROSS_ENTROPY, (data[0].pooled(), data[1]), replace(once, steps=3 * sites))
    start = pooled.state.server["w"].clone()
    for round in range(2):
        pooled.round(round)
        plain.round(round)
    assert pooled.seen[0].n.tolist() == [len(data[0].labels)]
    assert not torch.equal(pooled.state.server["w"], start)
    assert torch.equal(pooled.state.server["w"], plain.state.server["w"])
