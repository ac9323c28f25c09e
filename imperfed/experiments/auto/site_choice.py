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
TEMPERATURES = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""What logits of the federated model may be divided by before they are mixed: networks are too sure, or not enough."""


def temperature_table(labels: Labels, logits: Tensor) -> Tensor:
    """Return the log-likelihood of each row's label at every temperature, [rows, temperatures]."""
    return torch.stack([labels.log_likelihood(labels.probabilities(logits / t)) for t in TEMPERATURES], 1)


def temperature(sums: Sequence[Tensor]) -> float:
    """Return the temperature of the federated model that fits all rows held out best, from every site's sums."""
    fits = added(sums).tolist()
    return TEMPERATURES[fits.index(max(fits))]


def mixed(federated: Tensor, alone: Tensor, weight: float) -> Tensor:
    """Return the mixture of two models' probabilities."""
    return weight * federated + (1 - weight) * alone


def sums_of(table: Tensor) -> Tensor:
    """Return the log-likelihood of all labels of a site under every option, float64 [options]; `table`: by row.

    It is all that the choice for all sites needs to know of a site.
    """
    return table.double().sum(0)


def added(sums: Sequence[Tensor]) -> Tensor:
    """Add up the sums of all sites, in their order: the result does not depend on where they were computed."""
    return torch.stack(list(sums)).sum(0)


def common_option(sums: Sequence[Tensor]) -> int:
    """Return the option that is best over the rows of all sites, from every site's sums; ties go to the last one."""
    return _last_best(added(sums))


def own_option(table: Tensor, common: int) -> int:
    """Return the option of one site: the common one, unless its rows prefer another one clearly.

    `table`: the log-likelihood of each row's label under every option, [rows, options].
    """
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
