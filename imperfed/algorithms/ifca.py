"""IFCA: iterative federated clustering, in the form of FB-NLL's baseline IFCA-PFL.

Paper: A. Ghosh, J. Chung, D. Yin, K. Ramchandran, An Efficient Framework for Clustered Federated Learning, IEEE Trans.
Inf. Theory 68(12), 2022 (Algorithm 1, model averaging); that no cluster is ever empty is from FB-NLL, Sec. V-A.

    theta_j    "w" for j = 0, "others" for the rest   travel down, all to every site, before it trains
    f_k        losses of the J models on all rows     travel up
    j_k        "picks", one-hot per site              at the server; site k trains and predicts with theta_{j_k}

Source: Algorithm 1 was checked against the authors' code; their other form, which averages gradients, is not
implemented.

Departs from the paper in: the server picks the cluster of a site from the losses it reports, since only the server sees
that a cluster would be empty; a site that does not take part in a round counts for its last cluster. The J models start
as independent draws, made from the first one's weights by random signs; buffers of normalisation layers are shared by
all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import positive
from imperfed.core.exchange import Exchange, Query, Train, Updates


@dataclass(frozen=True)
class IFCA(Algorithm):
    """IFCA-PFL: several models, each trained by the sites whose rows it fits best; none is ever left without a site."""

    name: ClassVar[str] = "ifca"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"clusters": (2, 3, 4)}
    clusters: int = 2  # J
    weighted: bool = False  # means within a cluster weighted by the sites' sizes; the paper's are unweighted

    def __post_init__(self) -> None:
        positive("method", clusters=self.clusters)

    @property
    def has_global_model(self) -> bool:
        return self.clusters == 1

    @property
    def not_mixable_because(self) -> str:
        return "they train different models" if self.clusters > 1 else ""

    def init_server(self, w: Tensor, sites: int) -> Tree:
        # Initial weights are symmetric around 0, so random signs give another draw; the ones of a normalisation layer
        # are not drawn and stay.
        signs = torch.where(torch.rand(self.clusters - 1, len(w)) < 0.5, -1.0, 1.0)
        return {
            "others": torch.where(w == 1, w, signs * w),
            "picks": one_hot(torch.arange(sites) % self.clusters, self.clusters).float(),
        }

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (
            Query("losses", self.assign, send=self.send_all, respond=self.losses),
            Train(self.merge, send=self.send_own),
        )

    def send_all(self, server: Tree, site: int) -> Tree:
        """Return every model, for a site to compare."""
        return {"others": server["others"]}

    def send_own(self, server: Tree, site: int) -> Tree:
        """Return the model of the site's own cluster, to train."""
        return {"w": server["picks"][site] @ models(server)}

    @torch.no_grad()
    def losses(self, site: SiteContext) -> Tree:
        """Return f_k(theta_j) for every j: the mean loss over all rows of the site."""
        nets = [partial(site.net.at, w, site.down["buffers"]) for w in models(site.down)]
        total = site.x.new_zeros(self.clusters)
        for batch in site.slices():
            total += torch.stack([site.objective.loss(net, batch)[0].sum() for net in nets])
        return {"losses": total / len(site.x)}

    def assign(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set j_k = argmin_j f_k(theta_j), ties to the lowest j; then move a site to every cluster that has none."""
        before = server["picks"]
        elsewhere = (before.sum(0) - before[updates.index].sum(0)).long()
        picks = nonempty(updates["losses"], elsewhere)
        chosen = one_hot(picks, self.clusters).float()
        return server | {"picks": before.index_copy(0, updates.index, chosen)}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set theta_j to the mean of its members' weights; a model whose members all failed stays as it was."""
        member = server["picks"][list(updates.who)].T * (updates.n if self.weighted else 1.0)  # [J, sites]
        total = member.sum(1, keepdim=True)
        means = updates.weighted_sum("w", member) / total.clamp(min=1e-12)
        first, *others = torch.where(total > 0, means, models(server))
        merged = super().merge(server, updates, context)
        stacked = torch.stack(others) if others else server["others"]
        return merged | {"w": first, "others": stacked}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        return server["picks"][site] @ models(server), server["buffers"]


def models(tree: Tree) -> Tensor:
    """Return theta, [J, S]."""
    return torch.cat([tree["w"].unsqueeze(0), tree["others"]])


def nonempty(losses: Tensor, elsewhere: Tensor) -> Tensor:
    """Return the cluster of each site: its argmin; an empty cluster then gets the site that loses least by moving.

    `elsewhere`: the number of members of each cluster among the sites that do not choose now.
    """
    picks = losses.argmin(1)
    J = losses.shape[1]
    for j in range(J if len(losses) + int(elsewhere.sum()) >= J else 0):
        members = elsewhere + picks.bincount(minlength=J)
        extra = losses[:, j] - losses.gather(1, picks[:, None]).flatten()
        extra[members[picks] == 1] = torch.inf  # a site alone in its cluster stays there
        if members[j] == 0 and extra.isfinite().any():
            picks[extra.argmin()] = j
    return picks
