"""FedCorr: its scores, terms and stages in numbers, and its later stages under the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from imperfed.algorithms.fedcorr import NEVER_REACHED, CorrectedCE, FedCorr, lid, lid_score
from imperfed.core.batch import Batch
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing import clauses
from imperfed.testing.cases import Case
from imperfed.testing.toy import Watched, engine, world

OUTPUTS = torch.tensor(
    [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]], dtype=torch.float64
)
FIVE = [1.517892, 1.448176, 5.153764, 4.145577, 5.565846]


def test_local_intrinsic_dimension_of_five_outputs() -> None:
    assert lid(OUTPUTS, torch.arange(5), 3).tolist() == pytest.approx(FIVE, abs=1e-5)
    assert lid_score(OUTPUTS, 3).item() == pytest.approx(3.566251, abs=1e-5)
    all_others = lid(OUTPUTS, torch.arange(5), 4)
    assert lid_score(OUTPUTS, 20).item() == pytest.approx(all_others.mean().item())  # as many as there are


def test_the_objective_alone_is_the_cross_entropy_towards_the_labels_so_far() -> None:
    z, y = torch.tensor([[1.0, 0, 2], [0, 3, 1]]), torch.tensor([2, 0])
    batch = Batch.of(z, Exact(torch.zeros(2, dtype=torch.int64), 3), torch.ones(2), {"y": y}, {})
    loss, kept = CorrectedCE().loss(lambda x: x, batch)
    torch.testing.assert_close(loss, -z.log_softmax(-1)[[0, 1], [2, 0]])
    assert torch.equal(CorrectedCE().update_rows(lambda x: x, batch, kept)["y"], y)


def test_ties_and_copies_do_not_explode() -> None:
    assert lid(OUTPUTS, torch.tensor([4]), 2).isnan().all()  # two neighbours at one distance
    assert lid_score(torch.ones(6, 3), 3).item() == 0
    assert lid_score(torch.ones(1, 3), 3).item() == 0


class Tall:
    """A network whose weights are (1.5, 1, 2.5)."""

    w = torch.tensor([1.5, 1.0, 2.5])


def test_the_pull_is_of_the_norm_itself() -> None:
    down = {"w": torch.tensor([1.0, 2.0, 2.0]), "pull": torch.tensor(5 * 0.4)}
    step = Local().step(Tall(), None, down, {}, {}, 0.1)  # type: ignore[arg-type]
    g = FedCorr().correct(torch.zeros(3), step)
    assert g.tolist() == pytest.approx([0.816497, -1.632993, 0.816497], abs=1e-6)
    down["w"] = Tall.w
    assert FedCorr().correct(torch.ones(3), step).tolist() == [1, 1, 1]


class Known:
    """A network that gives ten rows known losses at w = 0 and known confidences in class 1 at w = 1."""

    losses = torch.tensor([0.1, 2, 1.5, 0.2, 3, 0.4, 2.5, 0.3, 1, 0.05])
    sure = torch.tensor([0.9, 0.4, 0.8, 0.9, 0.7, 0.6, 0.3, 0.5, 0.95, 0.99])

    def at(self, w: torch.Tensor, buffers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if w.item() == 0:
            p = (-self.losses).exp()
            return torch.stack([p, 1 - p, torch.zeros(10)], 1).log()
        return torch.stack([(1 - self.sure) / 2, self.sure, (1 - self.sure) / 2], 1).log()


def test_large_losses_are_relabelled_where_the_model_is_sure() -> None:
    rows, x = {"y": torch.zeros(10, dtype=torch.int64)}, torch.zeros(10, 1)
    batch = Batch.of(x, Exact(rows["y"], 3), torch.ones(10), rows, {})
    memory, w = {"w": torch.zeros(1), "buffers": torch.zeros(0)}, torch.ones(1)
    site = SimpleNamespace(net=Known(), memory=memory, slices=lambda: [batch], down={"share": torch.tensor(0.6 * 0.5)})
    prepared = FedCorr().prepare(site)  # type: ignore[arg-type]
    assert prepared["least"].item() == pytest.approx(2.0, abs=1e-5)  # the third largest of ten, of 4, 6 and 1
    down = prepared | {"w": w, "buffers": torch.zeros(0)}
    step = Local().step(Known(), batch, down, memory, {}, 0.1)  # type: ignore[arg-type]
    assert FedCorr().corrected(step).nonzero().flatten().tolist() == [4]
    assert FedCorr(confidence=0.35).corrected(step).nonzero().flatten().tolist() == [1, 4]
    site.down = {"share": torch.tensor(0.05)}
    assert FedCorr().prepare(site)["least"] == torch.tensor(NEVER_REACHED)  # type: ignore[arg-type]


def test_the_loss_is_mixed_as_the_inputs_are() -> None:
    """Three rows, each with the next: lambda 0.3 of the row and of its label, and 0.7 of the partner's."""
    x, y = torch.tensor([[1.0, 0], [0, 2], [3, 1]]), torch.tensor([0, 1, 1])
    draws = {"lam": torch.tensor(0.3), "keys": torch.tensor([0.9, 0.1, 0.5])}  # partners 1, 2, 0
    batch = Batch.of(x, Exact(y, 2), torch.ones(3), {"y": y}, draws)

    class Identity:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def at(self, w: torch.Tensor, buffers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return x

    down = {"w": x, "buffers": x, "least": torch.tensor(NEVER_REACHED)}
    step = Local().step(Identity(), batch, down, {"w": x, "buffers": x}, {}, 0.1)  # type: ignore[arg-type]
    loss, kept = FedCorr().step_loss(CorrectedCE(), step)
    mixed = torch.tensor([[0.3, 1.4], [2.1, 1.3], [1.6, 0.3]])
    logp = mixed.log_softmax(-1)
    by_hand = -(0.3 * logp[0, 0] + 0.7 * logp[0, 1] + logp[1, 1] + 0.3 * logp[2, 1] + 0.7 * logp[2, 0]) / 3
    assert loss.item() == pytest.approx(by_hand.item(), abs=1e-6)
    assert torch.equal(kept, y)


def test_a_whole_number_of_rows_is_not_rounded_down() -> None:
    """0.58 in single precision is a little less: half of 58 rows of 100 are 29 all the same."""
    rows = {"y": torch.zeros(100, dtype=torch.int64)}
    losses = torch.arange(100.0) / 100
    net = SimpleNamespace(at=lambda w, buffers, x: torch.stack([-losses, (1 - (-losses).exp()).log()], 1))
    batch = Batch.of(torch.zeros(100, 1), Exact(rows["y"], 2), torch.ones(100), rows, {})
    mu = torch.tensor(0.58)
    site = SimpleNamespace(net=net, memory={"w": 0, "buffers": 0}, slices=lambda: [batch], down={"share": 0.5 * mu})
    assert FedCorr().prepare(site)["least"].item() == pytest.approx(0.71, abs=1e-5)  # type: ignore[arg-type]


def test_what_a_site_is_told_in_each_stage() -> None:
    method, server = FedCorr(stage1=2, stage2=3), {"mu": torch.tensor([0.0, 0.4]), "noisy": torch.tensor([0.0, 1.0])}
    told = [method.send(server | {"t": torch.tensor(float(t))}, 1) for t in range(7)]
    assert [d["pull"].item() for d in told] == pytest.approx([2, 2, 0, 0, 0, 0, 0])
    assert [d["share"].item() for d in told] == pytest.approx([0, 0.2, 0.2, 0, 0, 1, 0])
    assert method.send(server | {"t": torch.tensor(5.0)}, 0)["share"] == 0  # a clean site relabels nothing


def test_who_is_merged_in_each_stage() -> None:
    method = FedCorr(stage1=1, stage2=1)
    w = torch.tensor([[1.0], [2.0], [4.0]])
    updates = Updates((0, 1, 2), torch.tensor([1.0, 1, 2]), {"w": w, "buffers": w[:, :0]})
    server = {"w": w[0], "buffers": w[0, :0], "mu": torch.tensor([0.05, 0.5, 0.1])}
    merged = [method.merge(server | {"t": torch.tensor(t)}, updates, None)["w"].item() for t in (0.0, 1.0, 2.0)]  # type: ignore[arg-type]
    assert merged == pytest.approx([11 / 4, 9 / 3, 11 / 4])
    all_noisy = server | {"mu": torch.tensor([0.9, 0.5, 0.6]), "t": torch.tensor(1.0)}
    assert method.merge(all_noisy, updates, None)["w"].item() == 2.0  # type: ignore[arg-type]


def noisy_run(rounds: int) -> tuple[Watched, torch.Tensor]:
    """A run in which sites 1 and 3 of five have half their labels wrong, and the true classes."""
    data = world(Exact, (60, 64, 68, 62, 66))
    y = data[0].labels.values.clone()
    for k in (1, 3):
        mine = y[data[0].starts[k] : data[0].starts[k + 1]]
        mine[::2] = (mine[::2] + torch.arange(len(mine[::2])) % 3 + 1) % 4
    noisy = replace(data[0], labels=Exact(y, 4)), data[1]
    method = FedCorr(stage1=3, stage2=2)
    local = Local(steps=15, batch=16, lr=0.1)
    assert data[1].truth is not None
    return engine(method, CorrectedCE(), noisy, local, rounds=rounds).go(), data[1].truth


def test_sites_of_large_dimension_are_noisy_and_their_own_estimate_counts() -> None:
    zeros = {name: torch.zeros(5) for name in ("mu", "noisy")}
    server = zeros | {"lid": torch.tensor([1.0, 1.0, 1.1, 1.0, 3.0])}
    told = {"lid": torch.tensor([2.5, 0.1, 0.2]), "mu": torch.tensor([0.4, 0.5, 0.6])}
    new = FedCorr().estimate(server, Updates((3, 0, 2), torch.ones(3), told), None)  # type: ignore[arg-type]
    assert new["lid"].tolist() == pytest.approx([1.1, 1.0, 1.3, 3.5, 3.0])  # summed over rounds
    assert new["noisy"].tolist() == [0, 0, 0, 1, 1]
    assert new["mu"].tolist() == pytest.approx([0, 0, 0, 0.4, 0])  # site 4 has not said; clean sites have none


def test_labels_are_corrected_on_the_way() -> None:
    e, truth = noisy_run(7)
    assert [sorted(seen.trees) for seen in e.seen[:2]] == [["buffers", "w"], ["lid", "mu"]]
    assert e.seen[1]["lid"][[1, 3]].min() > 2 * e.seen[1]["lid"][[0, 4]].max()
    given = e.population.federation.labels.values
    assert (given != truth).sum() == 63
    assert (e.state.rows["y"] != truth).sum() < 30
    beliefs = e.inferred_labels()
    assert beliefs is not None
    assert torch.equal(beliefs.argmax(1), e.state.rows["y"])


@pytest.mark.parametrize(
    "clause",
    [
        clauses.workers_make_no_difference,
        clauses.one_program_for_all_makes_no_difference,
        clauses.resuming_makes_no_difference,
        clauses.padding_makes_no_difference,
    ],
)
def test_the_last_correction_keeps_the_contract(clause: Callable[[Case], None]) -> None:
    clause(Case(FedCorr(stage1=1, stage2=0), CorrectedCE()))
