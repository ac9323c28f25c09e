"""The mean of a loss over a batch's real rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError


def batch(real: Tensor) -> Batch:
    return Batch.of(torch.zeros(len(real), 2), None, real, {}, {})


def test_padding_has_no_share_in_the_mean() -> None:
    assert batch(torch.tensor([1.0, 1.0, 0.0])).mean(torch.tensor([1.0, 2.0, 9.0])) == 1.5
    assert batch(torch.zeros(2)).mean(torch.tensor([1.0, 2.0])) == 0


@pytest.mark.parametrize("shape", [(), (2,), (3, 3)])
def test_a_loss_that_is_not_one_per_row_is_told_what_to_be(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"the loss of each row, here \[3\].* of shape \[[23, ]*\]$"):
        batch(torch.ones(3)).mean(torch.ones(shape))
