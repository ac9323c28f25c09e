"""FedNoRo: its losses, the sites it finds, and its merge, in numbers; and its second stage under the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fednoro import FedNoRo, adjusted, distances, scaled, weights_of
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.core.network import Field, Layout
from imperfed.engine.local_training import Local
from imperfed.testing import clauses, mishaps
from imperfed.testing.cases import Case
from imperfed.testing.toy import engine, world

Z = torch.tensor([[1, 0.5, -0.2], [0.2, 0.1, 0.4]], dtype=torch.float64)
Y = torch.tensor([0, 1])
COUNTS = torch.tensor([8.0, 1, 1], dtype=torch.float64)
TEACHER = torch.tensor([[0.5, 0.5, 0], [0, 1, 0]], dtype=torch.float64)


class Two:
    """A network of two rows: the student's logits, and the teacher's at the weights received."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return Z

    def at(self, w: torch.Tensor, buffers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return TEACHER


def loss(weight: float, counts: torch.Tensor = COUNTS, y: torch.Tensor = Y) -> float:
    batch = Batch.of(Z, Exact(y, 3), torch.ones(2, dtype=torch.float64), {}, {})
    down = {"w": Z, "buffers": Z, "teacher": torch.tensor(weight, dtype=torch.float64)}
    step = Local().step(Two(), batch, down, {"counts": counts}, {}, 0.1)  # type: ignore[arg-type]
    return FedNoRo().step_loss(CROSS_ENTROPY, step)[0].item()


def test_the_loss_of_clean_and_noisy_sites() -> None:
    assert cross_entropy(Z, Y).item() == pytest.approx(0.942871, abs=1e-6)
    assert loss(0.0) == pytest.approx(1.261304, abs=1e-6)
    assert loss(1.0) == pytest.approx(0.905112, abs=1e-6)
    at_30 = FedNoRo().teacher_weight(torch.tensor(30.0)).item()
    assert loss(at_30) == pytest.approx(1.174330, abs=1e-6)


def test_classes_that_a_site_lacks_count_for_nothing() -> None:
    counts = torch.tensor([6.0, 0, 4], dtype=torch.float64)
    p = adjusted(Z, counts).softmax(-1)
    assert p[:, 1].tolist() == [0, 0]
    q = (TEACHER[:, [0, 2]] / 0.8).softmax(-1)
    by_hand = (q * (q.log() - p[:, [0, 2]].log())).sum(-1).mean().item()
    assert loss(1.0, counts, torch.tensor([0, 2])) == pytest.approx(by_hand, abs=1e-6)


def test_until_they_are_looked_for_no_site_is_noisy() -> None:
    method = FedNoRo()
    server = method.init_server(torch.zeros(2), 3)
    assert [method.send(server, k)["teacher"].item() for k in range(3)] == [0, 0, 0]
    assert [len(method.exchanges(t)) for t in (0, 9, 10, 11)] == [1, 1, 2, 1]


def test_the_teacher_sets_in() -> None:
    weights = [FedNoRo().teacher_weight(torch.tensor(float(t))).item() for t in (10, 20, 30, 49, 80)]
    assert weights == pytest.approx([0.005390, 0.050400, 0.244177, 0.8, 0.8], abs=1e-6)
    with pytest.raises(UsageError, match="ramp_until must come after"):
        FedNoRo(warmup=49)


def test_noisy_sites_count_less_the_farther_they_are() -> None:
    w = torch.tensor([[0.0, 0], [1, 0], [3, 4], [0, 2]])
    updates = Updates((0, 1, 2, 3), torch.tensor([10.0, 20, 30, 40]), {"w": w, "buffers": w[:, :0]})
    one_tensor = Layout({"w": Field(0, torch.Size([2]), True)}, 2, 2, 2, 2)
    d = distances(updates, torch.tensor([False, False, True, True]), one_tensor)
    assert d.tolist() == pytest.approx([0, 0, 1, 0.447214], abs=1e-6)
    a = weights_of(d, updates.n)
    assert a.tolist() == pytest.approx([0.150122, 0.300243, 0.165680, 0.383955], abs=1e-6)
    assert (a @ w).tolist() == pytest.approx([0.797283, 1.430630], abs=1e-6)
    server = {"noisy": torch.tensor([0.0, 0, 1, 1]), "t": torch.tensor(4.0)}
    context = SimpleNamespace(net=SimpleNamespace(layout=one_tensor))
    new = FedNoRo().merge(server, updates, context)  # type: ignore[arg-type]
    assert new["w"].tolist() == pytest.approx([0.797283, 1.430630], abs=1e-6)
    assert new["t"] == 5
    two_tensors = Layout({"a": Field(0, torch.Size([1]), True), "b": Field(1, torch.Size([1]), True)}, 2, 2, 2, 2)
    apart = distances(updates, torch.tensor([False, False, True, True]), two_tensors)
    assert apart.tolist() == pytest.approx([0, 0, 1, 2 / 6], abs=1e-6)  # 2 + 4 from (1, 0), and 2 from (0, 0)
    buffers = replace(updates, trees={"w": w[:, :1], "buffers": w[:, 1:]})
    normalised = Layout({"a": Field(0, torch.Size([1]), True), "b": Field(1, torch.Size([1]), False)}, 1, 1, 2, 2)
    assert distances(buffers, torch.tensor([False, False, True, True]), normalised).tolist() == apart.tolist()
    assert distances(updates, torch.ones(4).bool(), one_tensor).tolist() == [0, 0, 0, 0]  # plain averaging


def test_losses_are_scaled_class_by_class() -> None:
    losses, known = torch.tensor([[1.0, 9], [3, 2], [2, 4]]), torch.tensor([[True, False], [True, True], [True, True]])
    assert scaled(losses, known).tolist() == [[0, 0], [1, 0], [0.5, 1]]
    assert scaled(torch.ones(3, 1), torch.ones(3, 1).bool()).tolist() == [[0], [0], [0]]  # all alike


def test_a_site_tells_the_mean_loss_of_each_class() -> None:
    method, y = FedNoRo(), torch.tensor([0, 2, 0])
    setup = SimpleNamespace(labels=Exact(y, 3), n=3)
    memory = method.init_site(setup)  # type: ignore[arg-type]
    assert memory["counts"].tolist() == [2, 0, 1]
    z = torch.tensor([[1.0, 0, 0], [0, 0, 3], [0, 2, 0]])
    slices = [SimpleNamespace(x=z[:2], labels=Exact(y[:2], 3)), SimpleNamespace(x=z[2:], labels=Exact(y[2:], 3))]
    site = SimpleNamespace(memory=memory, net=lambda x: x, slices=lambda: slices)
    told = method.class_losses(site)  # type: ignore[arg-type]
    first, second, third = (cross_entropy(z[i], y[i]).item() for i in range(3))
    assert told["losses"].tolist() == pytest.approx([(first + third) / 2, 0, second])
    assert told["counts"].tolist() == [2, 0, 1]


def test_a_class_that_a_site_lacks_says_nothing_about_it() -> None:
    losses = torch.tensor([[1.0, 1], [1.1, 1], [1, 1], [0, 1]])  # site 3 has no row of class 0
    counts = torch.tensor([[5.0, 5], [5, 5], [5, 5], [0, 5]])
    updates = Updates((0, 1, 2, 3), torch.full((4,), 10.0), {"losses": losses, "counts": counts})
    context = SimpleNamespace(notes=[], sites=())
    server = {"noisy": torch.zeros(4)}
    assert FedNoRo().detect(server, updates, context)["noisy"].tolist() == [0, 1, 0, 0]  # type: ignore[arg-type]


def test_sites_with_wrong_labels_are_found() -> None:
    data = world(Exact, (40, 60, 50, 44, 56))
    y = data[0].labels.values.clone()
    for k in (1, 3):
        mine = slice(data[0].starts[k], data[0].starts[k + 1])
        y[mine][::2] = (y[mine][::2] + 1) % 4
    noisy = replace(data[0], labels=Exact(y, 4)), data[1]
    local = Local(steps=15, batch=16, lr=0.1)
    e = engine(FedNoRo(warmup=3), CROSS_ENTROPY, noisy, local, rounds=5).go()
    assert e.state.server["noisy"].tolist() == [0, 1, 0, 1, 0]
    assert any("noisy: site1, site3" in note for note in e.reports[3].notes)
    sent = [e.population.down(k, e.population.spec.algorithm.exchanges(4)[-1])["teacher"].item() for k in range(5)]
    assert sent[0] == 0
    assert sent[1] == pytest.approx(0.8 * torch.exp(torch.tensor(-5 * (1 - 2 / 46) ** 2)).item(), abs=1e-6)


@pytest.mark.parametrize(
    "clause",
    [
        clauses.workers_make_no_difference,
        clauses.one_program_for_all_makes_no_difference,
        clauses.resuming_makes_no_difference,
        clauses.padding_makes_no_difference,
        clauses.order_of_answers_makes_no_difference,
        clauses.uploads_hold_no_rows,
        mishaps.a_site_that_drops_out_is_left_out,
    ],
)
def test_the_second_stage_keeps_the_contract(clause: Callable[[Case], None]) -> None:
    clause(Case(FedNoRo(warmup=1), CROSS_ENTROPY))
