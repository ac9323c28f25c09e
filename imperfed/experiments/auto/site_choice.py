"""How much of each site's prediction comes from the federated model, and how much from the site's own.

Rows held out at a site are few, so a choice by them alone is mostly noise. All sites therefore share one weight, the
best over all rows held out by the log-likelihood of their labels, and a site departs from it only if its own rows
say so beyond one standard error. Before they are mixed, the federated model's probabilities are calibrated on the same
rows: an overconfident network would drown the other model at any weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.labels import Labels

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares of the federated model that are compared; at 0 a site predicts alone."""
FEWEST_ROWS = 10
"""Rows below which a site's own standard error is itself mostly noise, so that it keeps the common choice."""
ERRORS = 1.0
"""Standard errors by which a site's own rows must prefer another choice."""


def mixed(federated: Tensor, alone: Tensor, weight: float) -> Tensor:
    """Return the mixture of two models' probabilities."""
    return weight * federated + (1 - weight) * alone


def choose(tables: Sequence[Tensor]) -> list[int]:
    """Return each site's option; `tables`: one per site, [rows, options], the log-likelihood of each row's label.

    The common option has the highest mean over all rows; ties go to the last one.
    """
    options = tables[0].shape[1]
    rows = torch.cat(list(tables))
    if not len(rows):
        return [options - 1] * len(tables)
    common = _last_best(rows.sum(0))
    return [_own(table, common) for table in tables]


def _own(table: Tensor, common: int) -> int:
    """Return the option of one site: the common one, unless its rows prefer another one clearly."""
    if len(table) < FEWEST_ROWS:
        return common
    gain = (table - table[:, common : common + 1]).double()
    mean, error = gain.mean(0), gain.std(0) / len(gain) ** 0.5
    clear = torch.where(mean > ERRORS * error, mean, -torch.inf)
    return _last_best(clear) if bool((clear > 0).any()) else common


def _last_best(scores: Tensor) -> int:
    return len(scores) - 1 - int(scores.flip(0).argmax())


def mixture_table(labels: Labels, federated: Tensor, alone: Tensor) -> Tensor:
    """Return the log-likelihood of each row's label under every mixture, [rows, weights]."""
    return torch.stack([labels.log_likelihood(mixed(federated, alone, w)) for w in WEIGHTS], 1)
