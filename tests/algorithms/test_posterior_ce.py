"""Posterior cross-entropy: every class counts by its probability."""

from __future__ import annotations

import torch

from imperfed.algorithms.cross_entropy import CrossEntropy
from imperfed.algorithms.posterior_ce import PosteriorCE
from imperfed.core.labels import Exact, Probabilities
from tests.support.transcription import Z, gradient, losses, near

Q = torch.tensor([[0.7, 0.2, 0.1, 0.0], [0.0, 0.5, 0.25, 0.25], [0.1, 0.0, 0.0, 0.9]])
DOUBT = Probabilities(Q, 4)


def test_it_is_the_expected_cross_entropy() -> None:
    log_p = torch.log_softmax(Z, -1)
    by_hand = [-sum(float(Q[i, y] * log_p[i, y]) for y in range(4)) for i in range(3)]
    near(losses(PosteriorCE(), labels=DOUBT), by_hand)
    near(losses(PosteriorCE(), labels=DOUBT), [1.345182, 1.735073, 0.586546])


def test_its_gradient_pulls_to_the_probabilities() -> None:
    near(gradient(PosteriorCE(), labels=DOUBT), (torch.softmax(Z, -1) - Q) / 3)


def test_without_doubt_it_is_the_cross_entropy() -> None:
    y = torch.tensor([1, 2, 3])
    sure = Probabilities(torch.eye(4)[y], 4)
    near(losses(PosteriorCE(), labels=sure), losses(CrossEntropy(), labels=Exact(y, 4)))
