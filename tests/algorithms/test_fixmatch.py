"""FixMatch for missing labels: its pseudo-labels and their loss, in the numbers of a worked example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from imperfed.algorithms.fixmatch import FixMatch
from imperfed.algorithms.iml import IML
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated
from imperfed.nn.views import NUMBERS, strong_view

WEAK = torch.tensor([[3, -3, 0.2], [4, -0.5, -4]], dtype=torch.float64)
STRONG = torch.tensor([[1, -1, 0], [2, 0, -1]], dtype=torch.float64)
LABELS = Annotated(torch.tensor([[1, -1, -1], [-1, -1, 0]], dtype=torch.int8), 3)
U = torch.rand(2, NUMBERS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
X = torch.tensor([[0.5, -1, 2, 1], [1, 0.2, -0.4, 3]], dtype=torch.float64)


def batch(labels: Annotated = LABELS) -> Batch:
    return Batch.of(X, labels, torch.ones(2, dtype=torch.float64), {}, {"fixmatch": U})


def unsupervised(labels: Annotated = LABELS, **settings: float | str) -> float:
    return FixMatch(**settings).unknown(WEAK, STRONG, batch(labels)).mean().item()  # type: ignore[arg-type]


def views(x: Tensor) -> Tensor:
    """A network that is given both views at once."""
    near_by, far = x.chunk(2)
    assert torch.equal(near_by, X)
    assert torch.equal(far, strong_view(X, U))
    return torch.cat([WEAK, STRONG]).requires_grad_()


def test_sure_cells_are_learned_from_the_strong_view() -> None:
    assert unsupervised() == pytest.approx(0.110047, abs=1e-6)  # (0, 1) is absent, (1, 0) present; of 4 missing cells
    assert unsupervised(tau=0.99) == 0
    all_sure = unsupervised(tau=0.54)  # (0, 2) present by its weak view 0.2, (1, 1) absent by -0.5
    assert all_sure == pytest.approx((0.313262 + 0.126928 + 2 * 0.693147) / 4, abs=1e-6)


def test_rows_as_a_whole() -> None:
    assert unsupervised(rule="rows") == 0  # in both rows a missing cell is unsure
    known = Annotated(torch.tensor([[1, -1, 0], [-1, -1, 0]], dtype=torch.int8), 3)
    assert unsupervised(known, rule="rows") == pytest.approx(0.313262, abs=1e-6)  # the missing cell of the first row


def test_the_loss_is_the_sum_of_both_parts() -> None:
    part, sure = IML(balance=False).known(WEAK, batch()), FixMatch().unknown(WEAK, STRONG, batch())
    assert FixMatch().lambda_u == 1
    for weight in (1.0, 0.3):
        loss, _ = FixMatch(balance=False, lambda_u=weight).loss(views, batch())
        torch.testing.assert_close(loss, part + weight * sure)


def test_weak_views_teach_and_do_not_learn() -> None:
    both = torch.cat([WEAK, STRONG]).requires_grad_()
    (g,) = torch.autograd.grad(FixMatch(balance=False).loss(lambda x: both, batch())[0].mean(), both)
    assert torch.equal(g[:2] != 0, LABELS.values >= 0)
    assert g[2:].nonzero().tolist() == [[0, 1], [1, 0]]
    assert g[2, 1] > 0  # pushed towards absent
    assert g[3, 0] < 0


def test_without_training_there_are_no_views() -> None:
    asked = Batch.of(X, LABELS, torch.ones(2, dtype=torch.float64), {}, {})
    loss, _ = FixMatch(balance=False).loss(lambda x: WEAK, asked)
    torch.testing.assert_close(loss, IML(balance=False).known(WEAK, asked))


@pytest.mark.parametrize("settings", [{"tau": 0.5}, {"tau": 1.1}, {"lambda_u": -1.0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"setting objective.{next(iter(settings))}"):
        FixMatch(**settings)  # type: ignore[arg-type]
