"""IML: the mean over annotated cells, in the numbers of a worked example."""

from __future__ import annotations

import pytest
import torch

from imperfed.algorithms.iml import IML
from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.batch import Batch
from imperfed.core.labels import Annotated
from tests.support.transcription import Answers, gradient, losses, near

Z = torch.tensor([[1, -2, 0.5], [-1, 0, 2]], dtype=torch.float64)
LABELS = Annotated(torch.tensor([[1, -1, 0], [-1, 1, -1]], dtype=torch.int8), 3)
PLAIN = IML(balance=False)


def test_every_annotated_cell_of_a_batch_counts_alike() -> None:
    assert losses(PLAIN, z=Z, labels=LABELS).mean().item() == pytest.approx(0.660162, abs=1e-6)
    assert losses(MaskedBCE(balance=False), z=Z, labels=LABELS).mean().item() == pytest.approx(0.668408, abs=1e-6)


def test_what_is_not_annotated_has_no_gradient() -> None:
    near(gradient(PLAIN, z=Z, labels=LABELS), [[-0.089647, 0, 0.207486], [0, -0.166667, 0]])


def test_positives_weigh_as_much_as_negatives() -> None:
    real = torch.ones(2, dtype=torch.float64)
    weighed = Batch.of(Z, LABELS, real, {}, {}, {"weight": torch.tensor([4, 19, 0.2], dtype=torch.float64)})
    assert IML().balance
    assert IML().loss(Answers(Z), weighed)[0].mean().item() == pytest.approx(5.132307, abs=1e-6)
    assert IML().site_stats(LABELS).keys() == {"weight"}


def test_padding_and_rows_without_annotation_count_for_nothing() -> None:
    values = torch.cat([LABELS.values, torch.tensor([[-1, -1, -1], [1, 1, 1]], dtype=torch.int8)])
    z, real = torch.cat([Z, Z]), torch.tensor([1.0, 1, 1, 0])
    batch = Batch.of(z, Annotated(values, 3), real, {}, {})
    assert batch.mean(PLAIN.loss(Answers(z.float()), batch)[0]).item() == pytest.approx(0.660162, abs=1e-6)
    nothing = Batch.of(z, Annotated(torch.full_like(values, -1), 3), real, {}, {})
    assert PLAIN.loss(Answers(z), nothing)[0].tolist() == [0, 0, 0, 0]
