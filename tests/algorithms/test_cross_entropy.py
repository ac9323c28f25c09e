import torch

from imperfed.algorithms.cross_entropy import CrossEntropy
from imperfed.core.labels import Exact
from tests.support.transcription import Z, assert_static, gradient, losses, near

LABELS = Exact(torch.tensor([1, 2, 3]), 4)


def test_is_minus_the_log_probability_of_the_label():
    near(losses(CrossEntropy(), labels=LABELS), [0.495182, 0.635073, 0.336546])


def test_extreme_logits_stay_finite():
    z = torch.tensor([[1e4, -1e4, 0, 0], [0, 0, -1e4, 1e4], [1e9, 0, 0, -1e9]])
    near(losses(CrossEntropy(), z=z, labels=LABELS), [2e4, 2e4, 2e9])
    assert torch.isfinite(gradient(CrossEntropy(), z=z, labels=LABELS)).all()


def test_works_out_no_labels_and_needs_no_number_on_the_host():
    assert_static(CrossEntropy(), LABELS)
    assert CrossEntropy().init_rows(LABELS) == {}
    assert CrossEntropy().infer_labels(Z, LABELS, {}) is None
