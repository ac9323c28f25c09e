"""FedSSP: SimSiam's loss in the numbers of a worked example, what each stage trains, and the change between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from imperfed.algorithms._simsiam import Predictor, Projector, Standardised, similarity_loss, simsiam, spread, views
from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fedssp import FedSSP
from imperfed.algorithms.fixmatch import FixMatch
from imperfed.algorithms.iml import IML
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated
from imperfed.core.network import Net
from imperfed.engine.local_training import Local
from imperfed.nn.views import NUMBERS, strong_view
from imperfed.testing import clauses
from imperfed.testing.cases import Case
from imperfed.testing.toy import differences, engine, world
from tests.support.transcription import double, near, tiny_net

P1, Z2 = torch.tensor([[1.0, 2], [0, 1]]), torch.tensor([[2.0, 1], [1, 1]])
P2, Z1 = torch.tensor([[1.0, 0], [1, 3]]), torch.tensor([[1.0, 1], [0, 2]])


def test_the_loss_by_hand() -> None:
    p1, p2, z1, z2 = (t.double().requires_grad_() for t in (P1, P2, Z1, Z2))
    L = similarity_loss(p1, p2, z1, z2).mean()
    assert L.item() == pytest.approx(-0.790724, abs=1e-6)
    assert similarity_loss(p1, p1, z2, z2).mean().item() == pytest.approx(-0.753553, abs=1e-6)
    assert similarity_loss(p2, p2, z1, z1).mean().item() == pytest.approx(-0.827895, abs=1e-6)
    g = torch.autograd.grad(L, (p1, p2, z1, z2), allow_unused=True)
    assert all(t is not None and t.any() for t in g[:2])
    assert g[2:] == (None, None)


def test_a_collapse_would_show() -> None:
    gaussian = torch.randn(20_000, 128, generator=torch.Generator().manual_seed(0))
    assert spread(gaussian).item() == pytest.approx(0.088386, abs=1e-4)
    assert spread(torch.ones(50, 128)).item() == pytest.approx(0, abs=1e-6)


def test_projections_are_standardised_over_the_real_rows() -> None:
    torch.manual_seed(0)
    layer, x = Standardised(3, 2), torch.randn(5, 3)
    share = torch.tensor([0.25, 0.25, 0.25, 0.25, 0])
    y = layer(x, share)[:4]
    h = (x[:4] @ layer.linear.weight.T).detach().numpy()
    expected = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5)
    near(y, expected, 1e-5)
    projector = Projector(3, 7)
    names = {name for name, _ in projector.named_parameters()}
    assert projector(x, share).shape == (5, 7)
    assert {"first.scale", "second.shift"} <= names
    assert "third.scale" not in names  # the last normalisation is without scale and shift
    assert not any("bias" in name for name in names)


def standard(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


@double()
def test_layers_of_projector_and_predictor() -> None:
    """Three layers with scale and shift but in the last, and two; ReLU between, none at the end."""
    torch.manual_seed(0)
    projector, predictor, h = Projector(4, 3), Predictor(3, 5), torch.randn(6, 4)
    for parameter in (*projector.parameters(), *predictor.parameters()):
        parameter.data += 0.3 * torch.randn_like(parameter)
    P = {name: p.detach().numpy() for name, p in projector.named_parameters()}
    a = np.maximum(standard(h.numpy() @ P["first.linear.weight"].T) * P["first.scale"] + P["first.shift"], 0)
    a = np.maximum(standard(a @ P["second.linear.weight"].T) * P["second.scale"] + P["second.shift"], 0)
    z = standard(a @ P["third.linear.weight"].T)
    share = torch.full((6,), 1 / 6)
    near(projector(h, share), z, 1e-9)
    Q = {name: p.detach().numpy() for name, p in predictor.named_parameters()}
    b = np.maximum(standard(z @ Q["first.linear.weight"].T) * Q["first.scale"] + Q["first.shift"], 0)
    near(predictor(torch.from_numpy(z), share), b @ Q["second.weight"].T + Q["second.bias"], 1e-9)


def test_widths() -> None:
    net = tiny_net(FedSSP(), hidden=9)
    shapes = {name: tuple(p.shape) for name, p in net.module.named_parameters()}
    assert shapes["projector.third.linear.weight"] == (9, 9)
    assert shapes["predictor.first.linear.weight"] == (2, 9)
    assert shapes["predictor.second.bias"] == (9,)
    wide = dict(tiny_net(FedSSP(dim=12, pred_dim=5), hidden=9).module.named_parameters())
    assert wide["projector.third.linear.weight"].shape == (12, 9)
    assert wide["predictor.first.linear.weight"].shape == (5, 12)


LABELS = Annotated(torch.tensor([[1, -1, 0, 1], [-1, 0, -1, -1], [0, 1, 1, -1]], dtype=torch.int8), 4)


def step_at(pretraining: float) -> tuple[Net, Batch, Tensor]:
    """A network, a batch and the gradient of a step in one of the stages."""
    draws = {"views": torch.rand(3, 2 * NUMBERS, generator=torch.Generator().manual_seed(1)).double()}
    x = torch.tensor([[1.0, 0.5, -1.0], [0.3, -0.8, 0.2], [-1.0, 0.4, 0.9]], dtype=torch.float64)
    batch = Batch.of(x, LABELS, torch.ones(3, dtype=torch.float64), {}, draws)
    net, down = tiny_net(FedSSP()), {"pretraining": torch.tensor(pretraining, dtype=torch.float64)}
    loss, _ = FedSSP().step_loss(IML(balance=False), Local().step(net, batch, down, {}, {}, 0.1))
    return net, batch, net.backward(loss).clone()


def named(net: Net, g: Tensor) -> dict[str, Tensor]:
    return {name: net.layout.view(g, name).clone() for name in net.layout.fields}


@double()
def test_pre_training_uses_no_label_below_the_head() -> None:
    net, batch, g = step_at(1.0)
    got = named(net, g)
    u = batch.draws["views"]
    h1, h2 = (net.features(strong_view(batch.x, part)) for part in (u[:, :NUMBERS], u[:, NUMBERS:]))
    alone = named(net, net.backward(simsiam(net, h1, h2, batch.share).mean()))
    supervised = IML(balance=False).loss(lambda x: net.module.head(h1.detach()), batch)[0].mean()
    head = named(net, net.backward(supervised))
    for name, t in got.items():
        torch.testing.assert_close(t, head[name] if name.startswith("head.") else alone[name], rtol=0, atol=1e-12)
    assert all(t.any() for t in got.values())


@double()
def test_then_labels_train_the_whole_network_on_the_rows_as_they_are() -> None:
    net, batch, g = step_at(0.0)
    assert all(torch.equal(view, batch.x) for view in views(batch, torch.zeros(())))
    plain = named(net, net.backward(IML(balance=False).loss(net, batch)[0].mean()))
    for name, t in named(net, g).items():
        torch.testing.assert_close(t, plain[name], rtol=0, atol=1e-12)
        assert t.any() == (not name.startswith(("projector.", "predictor.")))


def test_after_its_rounds_it_is_plain_averaging_from_what_was_learned() -> None:
    data = world(Annotated)
    e = engine(FedSSP(pretrain=1), IML(), data, rounds=2, participation=0.75)
    e.round(0)
    learned = e.state.server["w"].clone()
    note = next(note for note in e.round(1).notes if "pre-training ends" in note)
    assert "have collapsed" not in note
    fields = e.population.spec.layout.fields
    e.close()
    plain = engine(FedAvg(), IML(), data, rounds=2, participation=0.75)
    kept = plain.population.spec.layout
    for name, field in kept.fields.items():
        plain.state.server["w"][field.offset : field.end] = learned[fields[name].offset : fields[name].end]
    plain.round(1)
    for name in kept.fields:
        torch.testing.assert_close(
            e.population.spec.layout.view(e.state.server["w"], name), kept.view(plain.state.server["w"], name)
        )
    plain.close()


def test_pre_training_does_not_see_labels() -> None:
    data, other = world(Annotated), world(Annotated, seed=1)[0].labels
    blind = type(data[0])(**{**vars(data[0]), "labels": other})
    ends = []
    for federation in (data[0], blind):
        e = engine(FedSSP(pretrain=5), IML(), (federation, data[1])).go()
        ends.append({k: t for k, t in named(e.population.runtime.net, e.state.server["w"]).items() if "head" not in k})
    assert not differences(*ends)


@pytest.mark.parametrize(
    "clause",
    [
        clauses.workers_make_no_difference,
        clauses.one_program_for_all_makes_no_difference,
        clauses.resuming_makes_no_difference,
        clauses.padding_makes_no_difference,
    ],
)
def test_the_change_of_stages_keeps_the_contract(clause: Callable[[Case], None]) -> None:
    clause(Case(FedSSP(pretrain=1), IML()))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="fedssp is for classes that are annotated or not"):
        FedSSP(objective=CROSS_ENTROPY)
    with pytest.raises(UsageError, match="fedssp chooses the inputs itself"):
        FedSSP(objective=FixMatch())
    with pytest.raises(UsageError, match=r"method\.pretrain"):
        FedSSP(pretrain=-1)
