"""MixUp-PME: mixtures of inputs and labels, in the numbers of a worked example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from imperfed.algorithms.fedpsl import FedPSL, half
from imperfed.algorithms.iml import IML
from imperfed.algorithms.mixup_pme import MixUpPME
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated
from imperfed.testing import clauses
from imperfed.testing.cases import Case

LABELS = Annotated(torch.tensor([[1, 0, -1, -1], [0, -1, 1, -1]], dtype=torch.int8), 4)
LOGITS = torch.tensor([[0.5, -1, 1, 0]] * 2, dtype=torch.float64)
X = torch.tensor([[1.0, 2], [3, 5]], dtype=torch.float64)


def batch(lam: float = 0.7) -> Batch:
    """Two rows that are each other's partners."""
    draws = {"lam": torch.tensor(lam, dtype=torch.float64), "keys": torch.tensor([0.9, 0.1])}
    return Batch.of(X, LABELS, torch.ones(2, dtype=torch.float64), {}, draws)


def first_row(lam: float = 0.7, **settings: str) -> float:
    """The loss of a batch whose second row counts for nothing."""
    one = batch(lam)
    alone = Batch(one.x, one.labels, torch.tensor([1.0, 0]), torch.tensor([1.0, 0]), {}, one.draws)
    alone.draws["keys"] = torch.tensor([2.9, 0.1])  # the only real row is mixed with the other all the same
    loss, _ = MixUpPME(balance=False, **settings).loss(lambda x: LOGITS, alone)  # type: ignore[arg-type]
    return loss[0].item()


@pytest.mark.parametrize(
    ("counted", "loss"),
    [
        ("either", (0.624077 + 0.463262 + 0.663262) / 3),
        ("both", 0.624077),
        ("all", (0.624077 + 0.463262 + 0.663262 + 0.693147) / 4),
        ("split", 0.468669),
    ],
)
def test_the_loss_of_a_mixture(counted: str, loss: float) -> None:
    assert first_row(counted=counted) == pytest.approx(loss, abs=1e-6)


def test_either_is_the_default() -> None:
    assert first_row() == pytest.approx(0.583533, abs=1e-6)
    assert (MixUpPME().a, MixUpPME().fill, MixUpPME().tau) == (1.0, "half", 0.95)


def test_inputs_are_mixed_like_labels() -> None:
    seen: list[Tensor] = []

    def net(x: Tensor) -> Tensor:
        seen.append(x)
        return LOGITS

    loss, _ = MixUpPME(balance=False).loss(net, batch())
    torch.testing.assert_close(seen[0], torch.stack([0.7 * X[0] + 0.3 * X[1], 0.7 * X[1] + 0.3 * X[0]]))
    second = (0.5 * torch.log1p(torch.exp(-LOGITS)) + 0.5 * torch.log1p(torch.exp(LOGITS)))[0]  # BCE towards 1/2
    targets = torch.tensor([0.3, 0.35, 0.85], dtype=torch.float64) - 0.5
    cells = second[:3] - targets * LOGITS[0, :3]
    assert loss.mean().item() == pytest.approx(((3 * 0.583533 + cells.sum()) / 6).item(), abs=1e-6)


def test_missing_labels_may_be_filled_with_what_the_model_is_sure_of() -> None:
    sure = torch.tensor([[9.0, 0, 0, 0], [0, -9, 0, 0]], dtype=torch.float64)
    filled = MixUpPME(fill="pseudo").filled(lambda x: sure, batch())
    assert filled.tolist() == [[1, 0, 0.5, 0.5], [0, 0, 1, 0.5]]
    assert MixUpPME().filled(lambda x: sure, batch())[1].tolist() == [0, 0.5, 1, 0.5]


def test_padding_is_not_mixed_in() -> None:
    one = batch()
    draws = {"lam": one.draws["lam"], "keys": torch.tensor([0.9, 0.1, 0.0])}
    x, labels = torch.cat([X, X[:1] + 7]), Annotated(torch.cat([LABELS.values, LABELS.values[:1]]), 4)
    padded = Batch.of(x, labels, torch.tensor([1.0, 1, 0], dtype=torch.float64), {}, draws)
    w = torch.arange(8, dtype=torch.float64).view(2, 4) / 7 - 0.4
    both = [b.mean(MixUpPME(balance=False).loss(lambda x: x @ w, b)[0]).item() for b in (one, padded)]
    assert both[0] == pytest.approx(both[1], abs=1e-12)


def test_fedpsl_mixes_within_either_half_of_a_batch() -> None:
    clauses.padding_makes_no_difference(Case(FedPSL(), MixUpPME()))
    b = half(batch(), 1)
    assert b.draws["lam"] == 0.7
    assert b.draws["keys"].tolist() == pytest.approx([0.1])


def test_shares_are_drawn_from_beta() -> None:
    draws = MixUpPME(a=0.2).draws(4000, 3, torch.Generator().manual_seed(0))
    assert draws["lam"].shape == (4000,)
    assert draws["keys"].shape == (4000, 3)
    assert draws["lam"].mean().item() == pytest.approx(0.5, abs=0.02)
    assert draws["lam"].var().item() == pytest.approx(0.25 / 1.4, abs=0.01)


def test_without_training_nothing_is_mixed() -> None:
    asked = Batch.of(X, LABELS, torch.ones(2, dtype=torch.float64), {}, {})
    loss, _ = MixUpPME(balance=False).loss(lambda x: LOGITS, asked)
    torch.testing.assert_close(loss, IML(balance=False).known(LOGITS, asked))


@pytest.mark.parametrize("settings", [{"a": 0.0}, {"tau": 0.5}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"setting objective.{next(iter(settings))}"):
        MixUpPME(**settings)  # type: ignore[arg-type]
