"""Calibration of the sites' corrections on the server's own clean rows.

F [n, d] and y [n] are the clean rows' features and classes. All thresholds come from here, so that none has to be
guessed: how far a clean row may lie from its own class, and by how much a mixture of two classes resembles one of them.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.repairs.fb_nll.spectra import projections, relevance, similarity, spectrum

FOLDS = 4
FEWEST = 8
"""The fewest clean rows of a class from which its directions can be computed."""
MANY = 20
"""The number of clean rows of a class below which only RANK_OF_FEW directions are used."""
RANK_OF_FEW = 5
QUARTER = 4
"""A class has at most d / QUARTER directions: all d would span every row, whatever its class."""
MAJOR = 0.6
"""The share of the larger class in a mixture of two."""


def class_directions(F: Tensor, y: Tensor, classes: int, rank: int) -> Tensor:
    """Return the leading directions of every class, [C, d, rank]."""
    return torch.stack([spectrum(F[y == c], rank)[1] for c in range(classes)])


def usable_rank(rank: int, features: int, y: Tensor, classes: tuple[str, ...]) -> int:
    """Return the rank of Eq. 7, as far as the clean rows and the number of features allow it."""
    fewest, name = scarcest(y, classes)
    if fewest < FEWEST:
        raise DataError(
            f"the server holds {fewest} clean rows of class {name!r}; label correction needs "
            f"{FEWEST} of every class: raise split.trusted, or set repair.correct = false"
        )
    without_a_fold = fewest - -(-fewest // FOLDS)
    return min(rank, max(1, features // QUARTER), without_a_fold if fewest >= MANY else RANK_OF_FEW)


def scarcest(y: Tensor, classes: tuple[str, ...]) -> tuple[int, str]:
    """Return the number of clean rows of the class with the fewest, and its name."""
    fewest, c = y.bincount(minlength=len(classes)).min(0)
    return int(fewest), classes[int(c)]


def cross_fitted(F: Tensor, y: Tensor, classes: int, rank: int) -> Tensor:
    """Return log |V_c^T phi(x)| of every clean row, with directions from the rows in the other folds; [n, C]."""
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
    """Return the logarithm of Eq. 7's norms, finite even for rows of zeros."""
    return projections(F, V).clamp(min=torch.finfo(F.dtype).tiny).log()


def margins(logs: Tensor, labels: Tensor) -> Tensor:
    """Return the log of the largest norm minus that of the label's norm: 0 where the label fits best."""
    return logs.max(1).values - logs.gather(1, labels[:, None]).flatten()


def power(logs: Tensor, y: Tensor, threshold: Tensor) -> Tensor:
    """Return the share of margins above the threshold if every clean row were given every wrong label in turn."""
    passes = logs.max(1, keepdim=True).values - logs > threshold
    wrong = torch.ones_like(passes).scatter_(1, y[:, None], False)
    return passes[wrong].double().mean()


def lead(R: Tensor) -> Tensor:
    """Return by how much the best clean class beats the second; R [..., C] -> [...]."""
    first, second = R.topk(2).values.unbind(-1)
    return first - second


def mixture_leads(F: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return `lead` of mixtures of every two classes, by one direction against other clean rows; sorted."""
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
