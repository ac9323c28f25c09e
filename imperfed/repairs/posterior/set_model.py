"""Candidate sets that may miss the true class: how many do, and the posterior of every row, Eqs. 27-33.

    exchange                a site sends (sums over its rows)       the server sends
    mean                    as in `noise_model.py`                  weights of the fit, temperatures
    noise, 30 times         by size of set: sets, and expected      mean p; e and pi, pooled over the sites
    (15 in a search)        misses; expected rows by class
    temperature             sums of log-likelihoods                 e and pi, for every temperature
    posterior               nothing                                 e and pi

S is the set of a row, k = |S| its size, C the number of classes, and y its true class. R is what the features say
about the row, Eq. 8, by the fit without its fold. The first fit has the targets

    27.  y_i(c) = 1/k for c in S_i, else 0.

A share e_k of the sets of size k misses the true class. Beside the true class, or without it, all sets of this size
are as probable as each other. A set holds y in k of C cases, and lacks it in C - k, so that for all y of a row, but for
a factor that they share,

    28.  P(S | y, k) = (1 - e_k) / k for y in S, e_k / (C - k) for y outside; e_C = 0;
    29.  Q_i(y) ~ R_i(y) pi(y) P(S_i | y, k_i), normalised over y.

Sets of one class are exact labels with uniform noise e_1. A small set may miss the true class more often than a large
one, as people who are sure may err, so every size has a share of its own, held near that of all sizes, e. Over all
sites, from e_k = 0.1 and pi = 1/C on, 30 times:

    30.  M[k] = sum over the sets of size k of the sum of Q_i outside S_i;  n[k]: their number;  over all k < C,
         e = (M + 0.1) / (n + 1);  e_k = (M[k] + 20 e) / (n[k] + 20)
    31.  pi(y) = (sum_i Q_i(y) + 1) / (n + C)

A site starts from these and does the same 30 times with its own M_s and n_s:

    32.  e_sk = (M_s[k] + 20 e_k) / (n_s[k] + 20);  pi_s by (31)
    33.  suspicion of row i = sum over y outside S_i of Q_i(y); temperature by (17), from log sum_y R pi P(S | y, k)

The targets of the next fit are Q^2, normalised, over all classes: a set that misses the truth is not trained on. That
wrong candidates of a class are often the same ones is not in the model: with probabilities of every candidate given
the true class, sets that miss the truth were ranked no better on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Updates
from imperfed.core.labels import Labels
from imperfed.repairs.posterior.axes import total
from imperfed.repairs.posterior.cross_fit import CrossFit
from imperfed.repairs.posterior.noise_model import (
    EPS,
    SITE_STEPS,
    SITE_STEPS_IN_SEARCH,
    NoiseModel,
    normalised,
)

MISSING = 0.1
"""The share of sets without the true class from which the estimate starts."""
POOLED_SETS = 20.0
"""How many sets of each size the share of all sizes counts for, and at a site that of all sites."""


@dataclass(frozen=True)
class SetFit(CrossFit):
    """Fits that begin with candidate sets."""

    def first_targets(self, labels: Labels) -> Tensor:
        """Return equal shares of all candidates, Eq. 27."""
        return normalised(labels.values.double())


@dataclass(frozen=True)
class SetModel(NoiseModel):
    """The exchanges after a fit, which leave the posterior Q in every site's memory."""

    estimated: ClassVar[tuple[str, str]] = ("e", "pi")

    # -- a site ---------------------------------------------------------------------------------------------------

    def counts(self, site: SiteView) -> Tree:
        """Return the sums of Eqs. 30 and 31 for every temperature."""
        S = site.labels.values
        sums = [misses(posterior_of_sets(R, e, pi, S)[0], S) for R, e, pi in self.ratios(site)]
        missed, rows = (torch.cat(parts) for parts in zip(*sums, strict=True))
        return {"missed": missed, "rows": rows, "sets": by_size(S)}

    def likelihoods(self, site: SiteView) -> Tree:
        """Return the sum of the sets' log-likelihoods for every temperature, Eq. 33."""
        S, steps = site.labels.values, SITE_STEPS_IN_SEARCH
        sums = [posterior_of_sets(R, *site_misses(R, e, pi, S, steps), S)[1].sum(1) for R, e, pi in self.ratios(site)]
        return {"log-likelihood": torch.cat(sums)}

    def conclude(self, site: SiteView) -> Tree:
        """Keep the site's posteriors Q, and the targets of the next fit."""
        ((R, e, pi),), S = self.ratios(site), site.labels.values
        Q = posterior_of_sets(R, *site_misses(R, e, pi, S, SITE_STEPS), S)[0][0]
        site.memory.update(Q=Q, targets=normalised(Q.square()))
        return {}

    # -- the server -----------------------------------------------------------------------------------------------

    def begin(self, temperatures: int) -> Tree:
        """Return e and pi from which the estimates start, for every temperature."""
        e = torch.full((temperatures, self.classes + 1), MISSING, dtype=torch.float64)
        return {"e": e, "pi": torch.full((temperatures, self.classes), 1 / self.classes, dtype=torch.float64)}

    def pool(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return e and pi after one more step, Eqs. 30 and 31."""
        sets = total(updates, "sets").clamp(min=0)
        missed = total(updates, "missed").clamp(min=0).minimum(sets)  # no more than there are, whatever a site claims
        e = (missed[:, :-1].sum(1, keepdim=True) + MISSING) / (sets[:-1].sum() + 1)
        return server | {"e": shares_missed(missed, sets, e), "pi": shares_of_rows(total(updates, "rows"))}


def posterior_of_sets(R: Tensor, e: Tensor, pi: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q, Eq. 29, [m, n, C], and the log-likelihood of every set, [m, n]."""
    C, k = S.shape[1], S.sum(1)
    inside, outside = (1 - e[:, k]) / k, e[:, k] / (C - k).clamp(min=1)  # Eq. 28
    weighed = R * pi[:, None] * torch.where(S, inside[..., None], outside[..., None])
    return normalised(weighed), (weighed.sum(-1) + EPS).log()


def outside_mass(Q: Tensor, S: Tensor) -> Tensor:
    """Return the probability that each set misses the true class, Eq. 33."""
    return (Q * ~S).sum(-1)


def misses(Q: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return M, the expected number of sets of every size that miss the true class, and of rows of every class."""
    C = S.shape[1]
    missed = Q.new_zeros(len(Q), C + 1).index_add_(1, S.sum(1), outside_mass(Q, S))
    return missed, Q.sum(1)


def by_size(S: Tensor) -> Tensor:
    """Return the number of sets of every size, 0 .. C."""
    return S.sum(1).bincount(minlength=S.shape[1] + 1).double()


def shares_missed(missed: Tensor, sets: Tensor, e: Tensor) -> Tensor:
    """Return e_k, held near e, Eqs. 30 and 32; a set of all classes misses none."""
    found = (missed + POOLED_SETS * e) / (sets + POOLED_SETS)
    found[:, -1] = 0
    return found


def shares_of_rows(rows: Tensor) -> Tensor:
    """Return pi from the expected number of rows of every class, Eq. 31."""
    return (rows + 1) / (rows.sum(1, keepdim=True) + rows.shape[1])


def site_misses(R: Tensor, e: Tensor, pi: Tensor, S: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return e and pi of one site after these steps of Eq. 32."""
    own, shares, sets = e, pi, by_size(S)
    for _ in range(steps):
        missed, rows = misses(posterior_of_sets(R, own, shares, S)[0], S)
        own, shares = shares_missed(missed, sets, e), shares_of_rows(rows)
    return own, shares
