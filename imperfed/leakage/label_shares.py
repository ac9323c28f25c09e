"""Labels from the gradient of the last layer's bias.

Under the cross-entropy, dL/db_c is the mean over rows of p_c - y_c, the predicted probability minus the label. For one
row it is negative for the row's class alone (Zhao et al., "iDLG", 2020). For many, an estimate of p_c from the weights
gives the share of every class (Wainakh et al., "LLG", 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.network import Net

PROBES = 256
"""Rows of noise on which the model's mean prediction is estimated."""


def head_bias(net: Net) -> str:
    """Return the name of the last layer's bias if it is sent, else an empty string."""
    field = net.layout.fields.get("head.bias")
    return "head.bias" if field is not None and field.end <= net.layout.shared else ""


def mean_prediction(net: Net, models: list[tuple[Tensor, Tensor]], shape: torch.Size) -> Tensor:
    """Return the mean probability of each class for noise, over several models: the site's rows are not known."""
    x = torch.randn(PROBES, *shape, generator=torch.Generator().manual_seed(0)).to(net.row.device)
    with torch.no_grad():
        return torch.stack([net.at(w, buffers, x).softmax(-1).mean(0) for w, buffers in models]).mean(0)


def estimated_shares(bias_gradient: Tensor, prediction: Tensor) -> Tensor:
    """Return the share of each class among the labels: y = p - g, which must be positive and sum to 1."""
    shares = (prediction - bias_gradient).clamp(min=0)
    return shares / shares.sum().clamp(min=1e-12)


def whole_numbers(shares: Tensor, rows: int) -> Tensor:
    """Return how many of so many rows each class has, by largest remainders."""
    exact = shares.double() * rows
    counts = exact.floor()
    for c in (exact - counts).argsort(descending=True)[: round(rows - float(counts.sum()))].tolist():
        counts[c] += 1
    return counts


def wrong_share(estimate: Tensor, truth: Tensor) -> float:
    """Return the share of rows that would have to change their class to turn one set of counts into the other."""
    one, other = (t.double() / t.sum() for t in (estimate, truth))
    return float((one - other).abs().sum() / 2)
