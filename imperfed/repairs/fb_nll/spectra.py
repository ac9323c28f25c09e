"""Equations (2) to (7) of FB-NLL: how two sets of rows compare by the second moments of their features.

F [n, d] holds feature rows phi(x) of one set, in float64; V [d, M] its first M directions, one per column.
"""

from __future__ import annotations

import torch
from torch import Tensor

FLOOR = 1e-6
"""The smallest ratio of one direction: a direction that one side lacks entirely must not decide alone."""
FEWEST = 10


def fewest(M: int) -> int:
    """Return the fewest rows from which a site sends M directions."""
    return max(M, FEWEST)


def spectrum(F: Tensor, M: int, center: bool = False) -> tuple[Tensor, Tensor]:
    """Return the M largest eigenvalues of the second moment and their directions: lambda [M] descending, V [d, M]."""
    n, d = F.shape
    F = moments_of(F, center)
    values, vectors = torch.linalg.eigh((F.T @ F if d <= n else F @ F.T) / n)  # Eq. 2, from the smaller side
    largest, V = values.flip(0)[:M].clamp(min=0), vectors.flip(1)[:, :M]
    if d > n:
        V = torch.nn.functional.normalize(F.T @ V, dim=0)
    return largest, V


def moments_of(F: Tensor, center: bool) -> Tensor:
    """Return the rows whose second moment is taken: as they are, or with their mean subtracted."""
    return F - F.mean(0) if center else F


def energy(F: Tensor, V: Tensor) -> Tensor:
    """Return e_m = |S v_m|: the second moment S of F along other rows' directions; V [..., d, M] -> [..., M]."""
    e: Tensor = torch.linalg.vector_norm(F.T @ (F @ V) / len(F), dim=-2)  # Eq. 3
    return e


def relevance(F: Tensor, eigenvalues: Tensor, V: Tensor) -> Tensor:
    """Return R_{i<-j}: how similar i's eigenvalues and energies along j's directions are; V [..., d, M] -> [...].

    Both terms of each ratio are i's own, so the scale of i's features does not matter.
    """
    e = energy(F, V)
    lam = eigenvalues.expand_as(e)
    r = torch.minimum(lam, e) / torch.maximum(lam, e).clamp(min=torch.finfo(e.dtype).tiny)  # Eq. 4
    return r.clamp(min=FLOOR).log().mean(-1).exp()  # Eq. 5


def similarity(R: Tensor, back: Tensor) -> Tensor:
    """Return R_ij, the mean of the two one-sided scores."""
    return (R + back) / 2  # Eq. 6


def projections(F: Tensor, V: Tensor) -> Tensor:
    """Return |V_c^T phi(x)| of every row and class; V [C, d, r] -> [n, C]. The largest entry is the label of Eq. 7."""
    norms: Tensor = torch.linalg.vector_norm(F @ V, dim=-1)  # Eq. 7
    return norms.T
