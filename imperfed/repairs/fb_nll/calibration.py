"""What the server learns from its own clean rows about the corrections that sites will make with them.

F [n, d] and y [n] are the clean rows' features and classes. All thresholds come from here, so that none has to be
guessed: how far a clean row may lie from its own class, and how far a mixture of two classes leans to one of them.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.repairs.fb_nll.spectra import projections, relevance, similarity, spectrum

FOLDS = 4
FEWEST = 8
"""Clean rows a class, below which nothing can be said of it."""
MANY = 20
"""Clean rows a class, below which RANK_OF_FEW directions have to do."""
RANK_OF_FEW = 5
QUARTER = 4
"""Directions of a class are at most this part of all: with all of them every class holds every row."""
MAJOR = 0.6
"""Share of the larger class in a mixture of two."""


def class_directions(F: Tensor, y: Tensor, classes: int, rank: int) -> Tensor:
    """The first directions of every class, [C, d, rank]."""
    return torch.stack([spectrum(F[y == c], rank)[1] for c in range(classes)])


def usable_rank(rank: int, features: int, y: Tensor, classes: tuple[str, ...]) -> int:
    """The rank of Eq. 7, as far as the clean rows and the number of features allow it."""
    fewest, name = scarcest(y, classes)
    if fewest < FEWEST:
        raise DataError(
            f"the server holds {fewest} clean rows of class {name!r}; label correction needs "
            f"{FEWEST} of every class: raise split.trusted, or set repair.correct = false"
        )
    without_a_fold = fewest - -(-fewest // FOLDS)
    return min(rank, max(1, features // QUARTER), without_a_fold if fewest >= MANY else RANK_OF_FEW)


def scarcest(y: Tensor, classes: tuple[str, ...]) -> tuple[int, str]:
    """How many clean rows there are of the class that has the fewest, and its name."""
    fewest, c = y.bincount(minlength=len(classes)).min(0)
    return int(fewest), classes[int(c)]


def cross_fitted(F: Tensor, y: Tensor, classes: int, rank: int) -> Tensor:
    """log |V_c^T phi(x)| of every clean row, by directions of the rows in the other folds; [n, C]."""
    fold = torch.empty_like(y)
    for c in range(classes):
        rows = (y == c).nonzero().flatten()
        fold[rows] = torch.arange(len(rows)) % FOLDS
    logs = F.new_empty(len(F), classes)
    for k in range(FOLDS):
        out = fold == k
        logs[out] = log_projections(F[out], class_directions(F[~out], y[~out], classes, rank))
    return logs


def log_projections(F: Tensor, V: Tensor) -> Tensor:
    """The logarithm of Eq. 7's norms, finite for rows of zeros too."""
    return projections(F, V).clamp(min=torch.finfo(F.dtype).tiny).log()


def margins(logs: Tensor, given: Tensor) -> Tensor:
    """log of the best norm minus log of the given label's: 0 where the given label is the best."""
    return logs.max(1).values - logs.gather(1, given[:, None]).flatten()


def power(logs: Tensor, y: Tensor, threshold: Tensor) -> Tensor:
    """Share of wrong labels whose margin passes the threshold, were every wrong label given to every clean row."""
    passes = logs.max(1, keepdim=True).values - logs > threshold
    wrong = torch.ones_like(passes).scatter_(1, y[:, None], False)
    return passes[wrong].double().mean()


def lead(R: Tensor) -> Tensor:
    """By how much the best clean class beats the second; R [..., C] -> [...]."""
    first, second = R.topk(2).values.unbind(-1)
    return first - second


def mixture_leads(F: Tensor, y: Tensor, classes: int) -> Tensor:
    """`lead` of mixtures of every two classes, by one direction against clean rows that are not in them; sorted."""
    rows = [F[y == c] for c in range(classes)]
    clean = [part[1::2] for part in rows]
    lam, V = map(torch.stack, zip(*(spectrum(part, 1) for part in clean), strict=True))
    leads = []
    for a, b in permutations(range(classes), 2):
        size = min(len(rows[a][::2]), len(rows[b][::2]))
        major = round(MAJOR * size)
        mixed = torch.cat([rows[a][::2][:major], rows[b][::2][: size - major]])
        lam_mixed, V_mixed = spectrum(mixed, 1)
        back = torch.stack([relevance(clean[c], lam[c], V_mixed) for c in range(classes)])
        leads.append(lead(similarity(relevance(mixed, lam_mixed, V), back)))
    return torch.stack(leads).sort().values
