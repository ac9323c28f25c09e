"""FedNed: uncertainties, targets and the step away from flagged models."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedned import FedNed, negative_target, uncertainty
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
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


def test_how_sure_it_must_be_is_measured_at_the_temperature() -> None:
    """At T = 2 the rows' largest probabilities are 0.69 and 0.51; at T = 1 the second would count as well."""
    z = torch.tensor([[0.0, 3, 0], [1.5, 0, 0]])
    batch = Batch.of(torch.zeros(2, 1), Exact(torch.tensor([0, 2]), 3), torch.ones(2), {}, {})
    step = Local().step(lambda x: z, batch, {"bad": torch.tensor(1.0)}, {}, {}, 0.1)  # type: ignore[arg-type]
    found = FedNed(confidence=0.6).step_loss(CROSS_ENTROPY, step)[0].item()
    assert found == pytest.approx(-float(z[0].log_softmax(-1)[1]) / 2)


def test_until_the_warm_up_ends_it_is_plain_averaging() -> None:
    e = engine(FedNed(warmup=2), CROSS_ENTROPY, world(Exact), rounds=2).go()
    torch.testing.assert_close(e.state.server["w"], e.seen[1].by_size() @ e.seen[1]["w"])
    assert e.state.server["t"] == 2
    assert not e.state.server["bad"].any()


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


def test_a_flagged_site_stays_flagged_and_its_target_is_that_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[torch.Tensor, torch.Tensor]] = []

    def stay(method: FedNed, net: object, start: dict[str, torch.Tensor], x: torch.Tensor, r: torch.Tensor) -> object:
        asked.append((x, r))
        return start["w"]

    monkeypatch.setattr(FedNed, "distil", stay)
    method = FedNed(warmup=1, inputs=30, temperature=3.0)
    e = engine(method, CROSS_ENTROPY, flat(2), Local(steps=15, batch=16, lr=0.1), rounds=2).go()
    (x, r), net = asked[0], e.server.net
    assert x.shape == (30, 6)
    torch.testing.assert_close(r, negative_target(net.at(e.seen[1]["w"][2], e.seen[1]["buffers"][2], x), 3.0)[None])
    server = e.state.server | {"bad": torch.tensor([1.0, 0, 0, 0])}  # site 0, flagged in an earlier round
    new = method.merge(server, e.seen[1], e.server.contexts(1)[0])
    assert new["bad"].tolist() == [1, 0, 1, 0]
    assert new["t"] == 3


@pytest.mark.parametrize(
    ("share", "bad"),
    [
        ([0.24, 0.24, 0.31, 0.21], [0, 0, 1, 0]),  # 1.2 / 4 is 0.3
        ([0.24, 0.24, 0.29, 0.23], [0, 0, 0, 0]),
        ([0.31, 0.31, 0.31, 0.31], [1, 1, 1, 1]),
    ],
)
def test_who_is_flagged(share: list[float], bad: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedNed, "uncertainties", lambda *_: torch.tensor(share))
    e = engine(FedNed(warmup=0, steps=0), CROSS_ENTROPY, world(Exact), rounds=1)
    before = e.state.server["w"].clone()
    e.go()
    assert e.state.server["bad"].tolist() == bad
    good = ~torch.tensor(bad).bool()
    n, w = e.seen[0].n[good], e.seen[0]["w"][good]
    torch.testing.assert_close(e.state.server["w"], n / n.sum() @ w if good.any() else before)
    assert e.state.server["t"] == 1


def test_equal_models_are_equally_unsure_under_dropout() -> None:
    e = engine(FedNed(), CROSS_ENTROPY, world(Exact), net=network(nn.Dropout(0.5)), rounds=1).go()
    net, x = e.server.net, torch.randn(40, 6)
    w = torch.stack([e.state.server["w"], e.state.server["w"], torch.zeros_like(e.state.server["w"])])
    updates = Updates((0, 1, 2), torch.ones(3), {"w": w, "buffers": w[:, :0]})
    context = SimpleNamespace(net=net, draw=torch.Generator().manual_seed(0))
    calls: list[int] = []
    hook = net.module.register_forward_hook(lambda *_: calls.append(1))
    share = FedNed(passes=5).uncertainties(updates, context, x)  # type: ignore[arg-type]
    hook.remove()
    assert not any(layer.training for layer in net.module.modules())
    assert len(calls) == 3 * 5
    assert share[0] == share[1]  # the same dropout for both
    assert share.sum().item() == pytest.approx(1)
    still = [uncertainty(net.at(one, w[0, :0], x).softmax(-1)) for one in w]  # without dropout
    assert abs(share[0].item() - (still[0] / sum(still)).item()) > 1e-3


def test_the_first_step_of_distillation_goes_down_the_divergence() -> None:
    """Adam's first step moves every weight by the rate, against the sign of its derivative."""
    data = world(Exact)
    e = engine(FedNed(), CROSS_ENTROPY, data, net=network(nn.Dropout(0.5)), rounds=1).go()
    net, x = e.server.net, data[0].public
    w, none = e.state.server["w"].clone(), torch.zeros(0)
    r = torch.rand(2, len(x), 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    net.train(True)  # whatever was done before: here dropout must not act
    moved = FedNed(steps=1, rate=0.01, temperature=4.0).distil(net, {"w": w, "buffers": none}, x, r) - w

    def kl(at: torch.Tensor) -> float:
        return float((r * (r.log() - (net.at(at, none, x) / 4.0).log_softmax(-1))).sum(-1).mean())

    for i in range(0, len(w), 7):
        h = torch.zeros_like(w).index_fill(0, torch.tensor(i), 1e-2)
        slope = (kl(w + h) - kl(w - h)) / 2e-2
        if abs(slope) > 1e-3:
            assert moved[i].item() == pytest.approx(-0.01 if slope > 0 else 0.01, rel=1e-2)


def test_public_inputs_are_needed() -> None:
    federation, oracle = world(Exact)
    with pytest.raises(UsageError, match=r"has none; set split.public"):
        engine(FedNed(), CROSS_ENTROPY, (replace(federation, public=federation.public[:0]), oracle), rounds=1).go()
