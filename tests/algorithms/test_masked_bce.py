import numpy as np
import torch

from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.labels import Annotated
from tests.support.transcription import Z, assert_static, gradient, losses, near

LABELS = Annotated(torch.tensor([[1, 0, -1, -1], [-1, -1, -1, -1], [0, 1, 1, 0]], dtype=torch.int8), 4)
UNEVEN = Annotated(torch.tensor([[1, 1, -1, -1], [0, 0, -1, 1], [0, 1, 1, -1]], dtype=torch.int8), 4)
P = 1 / (1 + np.exp(-Z.numpy()))


def test_is_the_mean_over_annotated_classes_only():
    first = -(np.log(P[0, 0]) + np.log(1 - P[0, 1])) / 2
    third = -(np.log(1 - P[2, 0]) + np.log(P[2, 1]) + np.log(P[2, 2]) + np.log(1 - P[2, 3])) / 4
    for objective in (MaskedBCE(), MaskedBCE(balance=False)):  # no class has more of one kind than of the other
        near(losses(objective, labels=LABELS), [first, 0.0, third])


def test_positives_weigh_as_much_as_the_negatives_of_their_class_at_the_site():
    near(MaskedBCE().site_stats(UNEVEN)["weight"], [2 / 1, 1 / 2, 1, 1])  # the last two have positives only
    first = -(2 * np.log(P[0, 0]) + 0.5 * np.log(P[0, 1])) / 2
    second = -(np.log(1 - P[1, 0]) + np.log(1 - P[1, 1]) + np.log(P[1, 3])) / 3
    third = -(np.log(1 - P[2, 0]) + 0.5 * np.log(P[2, 1]) + np.log(P[2, 2])) / 3
    near(losses(MaskedBCE(), labels=UNEVEN), [first, second, third])


def test_without_balance_nothing_is_surveyed():
    assert MaskedBCE(balance=False).site_stats(UNEVEN) == {}
    first = -(np.log(P[0, 0]) + np.log(P[0, 1])) / 2
    near(losses(MaskedBCE(balance=False), labels=UNEVEN)[0], first)


def test_what_is_not_annotated_has_no_gradient():
    g = gradient(MaskedBCE(), labels=LABELS)
    assert torch.equal(g != 0, LABELS.values >= 0)
    p = torch.sigmoid(Z)
    near(g[0, :2], [(p[0, 0] - 1) / 2 / 3, p[0, 1] / 2 / 3])


def test_extreme_logits_stay_finite():
    z = torch.tensor([[1e4, 1e4, -1e4, 0], [1e4, 0, 0, 0], [1e9, -1e9, 1e4, -1e4]])
    near(losses(MaskedBCE(), z=z, labels=LABELS), [5e3, 0, 5e8])
    assert torch.isfinite(gradient(MaskedBCE(), z=z, labels=LABELS)).all()


def test_needs_no_number_on_the_host():
    assert_static(MaskedBCE(), LABELS)


def test_fills_in_what_is_missing_and_leaves_what_is_given():
    belief = MaskedBCE().infer_labels(Z, UNEVEN, {})
    near(belief, [[1, 1, P[0, 2], P[0, 3]], [0, 0, P[1, 2], 1], [0, 1, 1, P[2, 3]]])
