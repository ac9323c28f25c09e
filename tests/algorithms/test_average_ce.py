import torch

from imperfed.algorithms.average_ce import AverageCE
from tests.support.transcription import S, W, Y, Z, assert_stable, gradient, losses, near


def test_numbers():
    near(losses(AverageCE()), [0.995182, 1.501740, 1.586546])
    near(losses(AverageCE()).mean(), 1.361156)


def test_gradient_pulls_to_equal_probabilities_over_the_candidates():
    near(gradient(AverageCE()), (torch.softmax(Z, -1) - Y / Y.sum(1, keepdim=True)) / 3)


def test_extreme_logits_stay_finite():
    assert_stable(AverageCE())


def test_believes_the_model_inside_the_set():
    near(AverageCE().infer_labels(Z, S, {}), W)
