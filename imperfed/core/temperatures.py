"""The temperatures that are compared where probabilities are calibrated, and how likely each makes labels."""

from __future__ import annotations

from torch import Tensor

from imperfed.core.labels import Labels

TEMPERATURES = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""What logits may be divided by."""


def likelihoods(logits: Tensor, labels: Labels) -> list[float]:
    """Return the log-likelihood of the labels of all these rows together at every temperature."""
    return [float(labels.log_likelihood(labels.probabilities(logits / t)).sum()) for t in TEMPERATURES]
