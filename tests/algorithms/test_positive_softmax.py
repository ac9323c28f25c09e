import torch

from imperfed.algorithms.positive_softmax import PositiveSoftmax
from imperfed.core.labels import Positives
from tests.support.transcription import Y, Z, assert_static, gradient, losses, near

NONE = Positives(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]], dtype=torch.bool), 4)


def test_is_the_mean_over_the_positives():
    near(losses(PositiveSoftmax(), labels=Positives(Y, 4)), [0.995182, 1.501740, 1.586546])


def test_an_example_without_positives_costs_and_teaches_nothing():
    assert losses(PositiveSoftmax(), labels=NONE)[1] == 0
    g = gradient(PositiveSoftmax(), labels=NONE)
    assert (g[1] == 0).all()
    assert (g[0] != 0).all()


def test_extreme_logits_stay_finite():
    z = torch.tensor([[-1e4, 0, 1e4, 0], [1e4, 0, 0, 0], [-1e9, 1e9, 0, 0]])
    near(losses(PositiveSoftmax(), z=z, labels=NONE), [1.5e4, 0, 1.5e9])
    assert torch.isfinite(gradient(PositiveSoftmax(), z=z, labels=NONE)).all()


def test_works_out_no_labels_and_needs_no_number_on_the_host():
    assert_static(PositiveSoftmax(), NONE)
    assert PositiveSoftmax().infer_labels(Z, NONE, {}) is None
