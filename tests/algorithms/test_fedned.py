"""FedNed: uncertainties, targets and the step away from flagged models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedned import FedNed, negative_target, uncertainty
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, network, world

P = [[(0.9, 0.1), (0.8, 0.2)], [(0.6, 0.4), (0.5, 0.5)], [(0.7, 0.3), (0.9, 0.1)]]


def test_uncertainty_of_three_sites() -> None:
    U = torch.stack([uncertainty(torch.tensor(p, dtype=torch.float64)) for p in P])
    assert U.tolist() == pytest.approx([0.825485, 1.366159, 0.935947], abs=1e-6)
    assert (U / U.sum()).tolist() == pytest.approx([0.263936, 0.436809, 0.299255], abs=1e-6)
    assert (U / U.sum() > 1.2 / 3).tolist() == [False, True, False]


def test_the_target_is_what_a_flagged_model_holds_unlikely() -> None:
    z = torch.tensor([[2.0, 0.0, -2.0]])
    p = (z / 2).softmax(-1)
    torch.testing.assert_close(negative_target(z, 2.0), (1 - p) / 2)


class Sure:
    """A network that is sure of one row and not of the other."""

    logits = torch.tensor([[20.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits


def test_flagged_sites_train_on_what_they_are_sure_of() -> None:
    batch = Batch.of(torch.zeros(2, 1), Exact(torch.tensor([1, 2]), 3), torch.ones(2), {}, {})
    losses = []
    for bad in (0.0, 1.0):
        step = Local().step(Sure(), batch, {"bad": torch.tensor(bad)}, {}, {}, 0.1)  # type: ignore[arg-type]
        losses.append(FedNed().step_loss(CROSS_ENTROPY, step)[0].item())
    given = -Sure.logits.log_softmax(-1)[[0, 1], [1, 2]]
    assert losses == pytest.approx([given.mean().item(), 0.0], abs=1e-6)  # row 0 towards class 0, row 1 not at all


def flat(site: int) -> tuple:
    """A federation one of whose sites has labels drawn at random."""
    federation, oracle = world(Exact, (60, 60, 60, 60))
    y = federation.labels.values.clone()
    mine = slice(federation.starts[site], federation.starts[site + 1])
    y[mine] = torch.randint(4, (60,), generator=torch.Generator().manual_seed(0))
    public = torch.cat([x[:20] for x in oracle.test_x])
    return replace(federation, labels=Exact(y, 4), public=public), oracle


@pytest.mark.parametrize("layers", [(), (nn.Dropout(0.2),)], ids=["plain", "dropout"])
def test_a_noisy_site_is_flagged_and_left_out(layers: tuple[nn.Module, ...]) -> None:
    method = FedNed(warmup=1, steps=0)
    e = engine(method, CROSS_ENTROPY, flat(2), Local(steps=15, batch=16, lr=0.1), network(*layers), rounds=2).go()
    assert e.state.server["bad"].tolist() == [0, 0, 1, 0]
    w, others = e.seen[1]["w"], [0, 1, 3]
    torch.testing.assert_close(e.state.server["w"], w[others].mean(0))


def test_distillation_moves_away_from_the_flagged_model() -> None:
    data, local = flat(2), Local(steps=15, batch=16, lr=0.1)
    ends = {}
    for steps in (0, 20):
        e = engine(FedNed(warmup=1, steps=steps), CROSS_ENTROPY, data, local, rounds=2).go()
        ends[steps] = e.state.server["w"].clone()
    net, x = e.server.net, data[0].public
    bad, buffers = e.seen[1]["w"][2], e.seen[1]["buffers"][2]
    r = negative_target(net.at(bad, buffers, x), 2.0)

    def kl(w: torch.Tensor) -> float:
        logp = (net.at(w, buffers, x) / 2.0).log_softmax(-1)
        return (r * (r.log() - logp)).sum(-1).mean().item()

    assert kl(ends[20]) < kl(ends[0])
    assert e.reports[-1].personal[0]["accuracy"][0] > 0.9


def test_public_inputs_are_needed() -> None:
    federation, oracle = world(Exact)
    with pytest.raises(UsageError, match=r"has none; set split.public"):
        engine(FedNed(), CROSS_ENTROPY, (replace(federation, public=federation.public[:0]), oracle), rounds=1).go()
