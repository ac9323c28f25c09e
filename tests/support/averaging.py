"""What holds for every method that averages weights, whatever it does to gradients and momenta."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.pfedpll import LCP
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Candidates, Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import LOCAL, Plain, Watched, differences, engine, network, world
from tests.support.bowls import keeping_the_head

EQUAL = (20, 20, 20)
WITHOUT_MOMENTUM = replace(LOCAL, momentum=0.0)


def learn(algorithm: Algorithm, local: Local = LOCAL, sizes: tuple[int, ...] = (12, 20, 31), **more: Any) -> Watched:
    """Two rounds on toy data with exact labels."""
    return engine(algorithm, Plain(), world(Exact, sizes), local, **more).go()


def assert_same_models(a: Watched, b: Watched, tolerance: float = 0.0) -> None:
    """The two runs end with the same model, and not with the one they began with."""
    assert not differences(a.model(0), b.model(0), tolerance)
    assert differences(a.model(0), dict(network().named_parameters()), tolerance=1e-2)


def assert_buffers_are_averaged(algorithm: Algorithm, by_size: bool = True) -> None:
    """Running statistics are the mean of the sites', and of no forward pass that FedAvg would not make."""
    e = learn(algorithm, net=network(nn.BatchNorm1d(8)))
    sent = e.seen[-1]
    p = sent.by_size() if by_size else torch.full_like(sent.n, 1 / 3)
    torch.testing.assert_close(e.state.server["buffers"], p @ sent["buffers"], rtol=0, atol=0)
    assert (sent["buffers"].std(0) > 0).all()
    once = replace(LOCAL, steps=1)
    runs = [learn(a, once, EQUAL, net=network(nn.BatchNorm1d(8)), rounds=1) for a in (algorithm, FedAvg())]
    assert torch.equal(runs[0].state.server["buffers"], runs[1].state.server["buffers"])


def assert_composes(algorithm: Algorithm) -> None:
    """Under an objective that remembers examples, with a personal head: of the head nothing leaves its site."""
    mine = keeping_the_head(replace(algorithm, objective=LCP()))
    e = engine(mine, LCP(), world(Candidates), rounds=3, participation=0.75).go()
    S = e.population.spec.layout.shared
    assert e.population.spec.layout.trainable > S
    for updates in e.seen:
        assert all(t.shape[1] == S for name, t in updates.trees.items() if name != "buffers")
    assert all(len(t) == S for name, t in e.state.server.items() if t.ndim and name != "buffers")
    heads = [e.model(k)["head.weight"] for k in range(4)]
    assert all(not torch.equal(heads[0], head) for head in heads[1:])
    assert all(torch.equal(e.model(0)["rep.0.weight"], e.model(k)["rep.0.weight"]) for k in range(4))
    belief = e.inferred_labels()
    assert belief is not None
    assert (belief.sum(1) - 1).abs().max() < 1e-5
