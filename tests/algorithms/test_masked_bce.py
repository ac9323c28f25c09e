import numpy as np
import torch
from fixtures import Z, assert_static, gradient, losses, near

from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.labels import Annotated

LABELS = Annotated(torch.tensor([[1, 0, -1, -1], [-1, -1, -1, -1], [0, 1, 1, 0]], dtype=torch.int8), 4)


def test_is_the_mean_over_annotated_classes_only():
    p = 1 / (1 + np.exp(-Z.numpy()))
    first = -(np.log(p[0, 0]) + np.log(1 - p[0, 1])) / 2
    third = -(np.log(1 - p[2, 0]) + np.log(p[2, 1]) + np.log(p[2, 2]) + np.log(1 - p[2, 3])) / 4
    near(losses(MaskedBCE(), labels=LABELS), [first, 0.0, third])


def test_what_is_not_annotated_has_no_gradient():
    g = gradient(MaskedBCE(), labels=LABELS)
    assert torch.equal(g != 0, LABELS.values >= 0)
    p = torch.sigmoid(Z)
    near(g[0, :2], [(p[0, 0] - 1) / 2 / 3, p[0, 1] / 2 / 3])


def test_extreme_logits_stay_finite():
    z = torch.tensor([[1e4, 1e4, -1e4, 0], [1e4, 0, 0, 0], [1e9, -1e9, 1e4, -1e4]])
    near(losses(MaskedBCE(), z=z, labels=LABELS), [5e3, 0, 5e8])
    assert torch.isfinite(gradient(MaskedBCE(), z=z, labels=LABELS)).all()


def test_works_out_no_labels_and_needs_no_number_on_the_host():
    assert_static(MaskedBCE(), LABELS)
    assert MaskedBCE().believe(Z, LABELS, {}) is None
