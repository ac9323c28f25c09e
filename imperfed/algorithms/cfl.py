"""CFL (Sattler, Mueller, Samek, "Clustered federated learning: model-agnostic distributed multitask optimization under
privacy constraints", IEEE TNNLS 2021): sites whose updates point apart get models of their own.

Source: checked against the authors' code; the acceptance test with gamma is from memory, unverified.

    symbol           where it lives                              does it travel
    theta_c          "w" for c = 0, "others" for the rest        down, the site's own
    c(k)             "picks", one-hot per site                   at the server
    D_k              updates["w"] - theta_c(k)                   up, as weights
    eps1, eps2       eps1, eps2, in units of an update's norm    never

A cluster is split where the mean of its updates is short and one of them is long: its sites agree to stay, though not
all of them want to. The parts are those of complete linkage on 1 - cos(D_i, D_j).

Departs from the paper in: there are at most `clusters` clusters; a site that does not answer in the round of a split
stays with the first part; buffers of normalisation layers are shared by all. Unlike the authors' notebook, which mixes
up positions and sites from the second split on, parts are numbered by site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from imperfed.algorithms.ifca import models
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import not_negative, positive
from imperfed.core.exchange import Exchange, Train, Updates


@dataclass(frozen=True)
class CFL(Algorithm):
    """One model to begin with; clusters of sites whose updates disagree are split in two, each with its own model."""

    name: ClassVar[str] = "cfl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"eps1": (0.4, 0.2, 0.8)}
    clusters: int = 4  # the most clusters
    eps1: float = 0.4  # eps1: a cluster may be split if the mean of its updates is shorter
    eps2: float = 1.6  # eps2: and the longest of them is longer
    warmup: int = 20  # rounds before the first split
    gamma: float = 0.0  # gamma_max: parts must be separated by more, sqrt((1 - largest cosine across) / 2)
    weighted: bool = False  # means weighted by the sites' sizes, as in the paper; the authors' code does not

    def __post_init__(self) -> None:
        positive("method", clusters=self.clusters)
        not_negative("method", eps1=self.eps1, eps2=self.eps2, warmup=self.warmup, gamma=self.gamma)

    @property
    def has_global_model(self) -> bool:
        return self.clusters == 1

    @property
    def not_mixable_because(self) -> str:
        return "they train different models" if self.clusters > 1 else ""

    def init_server(self, w: Tensor, sites: int) -> Tree:
        first = one_hot(torch.zeros(sites, dtype=torch.int64), self.clusters).float()
        return {"others": w.repeat(self.clusters - 1, 1), "picks": first, "t": torch.zeros(())}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send_own),)

    def send_own(self, server: Tree, site: int) -> Tree:
        """Return the model of the site's own cluster."""
        return {"w": server["picks"][site] @ models(server)}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        return server["picks"][site] @ models(server), server["buffers"]

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        who, theta = updates.index, models(server).clone()
        weight = updates.n if self.weighted else torch.ones_like(updates.n)
        home = server["picks"].argmax(1)
        D = updates["w"] - theta[home[who]]
        for c in range(int(home.max()) + 1):
            members = (home[who] == c).nonzero().flatten()
            part = self.split(D[members], weight[members]) if server["t"] >= self.warmup else None
            if part is not None and int(home.max()) + 1 < self.clusters:
                new = int(home.max()) + 1
                theta[new] = theta[c]  # children start from the parent's model
                home = home.index_fill(0, who[members[part]], new)
                sizes = f"{int(part.sum())} of {len(part)} sites"
                context.notes.append(f"cfl splits cluster {c}: {sizes} form cluster {new}")
        member = one_hot(home[who], self.clusters).T * weight  # [J, sites]
        total = member.sum(1, keepdim=True)
        theta = theta + member @ D / total.clamp(min=1e-12)  # theta_c <- theta_c + mean of D_k over its members
        picks = one_hot(home, self.clusters).to(server["picks"])
        merged = super().merge(server, updates, context)
        return merged | {"w": theta[0], "others": theta[1:], "picks": picks, "t": server["t"] + 1}

    def split(self, D: Tensor, weight: Tensor) -> Tensor | None:
        """Return which members of a cluster leave it, bool; None where it stays whole."""
        if len(D) <= 2:
            return None
        mean, longest = torch.linalg.vector_norm(weight @ D / weight.sum()), torch.linalg.vector_norm(D, dim=1).max()
        if mean >= self.eps1 or longest <= self.eps2:
            return None
        S = cosines(D)
        part = complete_linkage(1 - S)
        return part if separation(S, part) > self.gamma else None


def cosines(D: Tensor) -> Tensor:
    """Return S, the cosines between all updates."""
    unit = normalize(D.double(), dim=1)
    return unit @ unit.T


def separation(S: Tensor, part: Tensor) -> float:
    """Return sqrt((1 - alpha_cross) / 2), alpha_cross the largest cosine between the two parts."""
    return float(((1 - S[part][:, ~part].max()) / 2).clamp(min=0).sqrt())


def complete_linkage(distance: Tensor) -> Tensor:
    """Return the second of two clusters by agglomeration with complete linkage, as bool; the first holds element 0."""
    d, groups = distance.clone().fill_diagonal_(torch.inf), [{i} for i in range(len(distance))]
    for _ in range(len(groups) - 2):
        i, j = divmod(int(d.argmin()), len(d))
        i, j = min(i, j), max(i, j)
        groups[i] |= groups[j]
        d[i] = d[:, i] = torch.maximum(d[i], d[j])
        d[i, i] = torch.inf
        d[j] = d[:, j] = torch.inf
        groups[j] = set()
    second = next(group for group in groups if group and 0 not in group)
    return torch.tensor([i in second for i in range(len(distance))], device=distance.device)
