"""Equations (1) to (11): how a site moves class u in every group's column, and how much weight that leaves it.

symbol          shape
q, R            [K, G]: one row per site, one column per group
m, c, z, w      [K]
f               [G]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.exchange import Updates
from imperfed.core.network import Net
from imperfed.defences.fairfedpapl.splitting import most
from imperfed.nn.inversion import Ensemble

MIDDLE = 0.4
"""The value of all groups' columns at which the level is measured."""

NO_RUN = 1e-12
"""Pairs of sites whose levels differ by no more than this say nothing about the slope."""

TO_DEVIATIONS = 1.4826
"""From a median absolute deviation to the standard deviation of a normal distribution."""

SAFE, GONE = 1.25, 2.75
"""The scores between which the weight of a suspect falls from 1 to 0."""

PASSES = 4
"""How often the weights and the scores are computed from each other."""

INSIDE = 0.5
"""The least weight of a site that is not reported as out and counts in the median of the scores."""


def probe_rows(rows: Tensor, groups: slice) -> Tensor:
    """Return the rows B as B_0, B_mid and every B_g, which differ in the groups' columns: [2 + G, rows, inputs]."""
    G = groups.stop - groups.start
    values = torch.cat([rows.new_zeros(1, G), rows.new_full((1, G), MIDDLE), torch.eye(G).to(rows)])
    probes = rows.repeat(len(values), 1, 1)
    probes[:, :, groups] = values.unsqueeze(1)
    return probes


@torch.no_grad()
def rise_and_level(net: Net, models: Mapping[str, Tensor], probes: Tensor, u: int) -> tuple[Tensor, Tensor]:
    """Return r_g, equation (1), and l, equation (2), of K models in double precision: [K, G] and [K]."""
    K = len(models["w"])
    z = Ensemble(net, models["w"], models["buffers"])(probes.flatten(0, 1).expand(K, -1, -1))
    z = z.double().unflatten(1, probes.shape[:2])
    mean = (z[..., u] - z.mean(-1)).mean(2)  # of zbar over the rows, [K, 2 + G]
    return mean[:, 2:] - mean[:, :1], mean[:, 1]


def moves(net: Net, sent: Tree, updates: Updates, probes: Tensor, u: int) -> tuple[Tensor, Tensor]:
    """Return q^r and m^r, equation (3); not finite where d_n = 0."""
    (r, level), (r_n, level_n) = (rise_and_level(net, models, probes, u) for models in (sent, updates.trees))
    d = (updates["w"].double() - sent["w"].double()).norm(dim=1)
    return (r_n - r) / d.unsqueeze(1), (level_n - level) / d


def middle(values: Tensor, dim: int = 0) -> Tensor:
    """Return the median; of an even number of values, the mean of the two in the middle."""
    return values.quantile(0.5, dim)


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the first value in ascending order at which the running sum of weights reaches half of the total."""
    order = values.argsort(stable=True)
    running = weights[order].cumsum(0)
    return values[order][(running < running[-1] / 2).sum()]


def slope(q: Tensor, m: Tensor, f: Tensor) -> Tensor:
    """Return kappa, equation (6), from the placebo columns: q and f are those of the groups other than t."""
    i, j = torch.triu_indices(len(m), len(m), 1, device=m.device)
    rise, run = q[i] - q[j], f * (m[i] - m[j]).unsqueeze(1)
    usable = run.abs() > NO_RUN
    return weighted_median(rise[usable] / run[usable], run[usable].abs()) if usable.any() else q.new_zeros(())


@dataclass(frozen=True)
class Contrast:
    """What the columns say about K sites, equations (6) to (8)."""

    kappa: Tensor
    c: Tensor
    """[K]: what each site does to the target group's column, beyond what its level explains."""
    P: Tensor
    """[K, G - 1]: the same for the other groups."""
    sigma: Tensor

    @classmethod
    def of(cls, q: Tensor, m: Tensor, f: Tensor, t: int) -> Contrast:
        """Compute it from the means over rounds and the shares of the groups; t: the number of the target group."""
        placebo = torch.arange(len(f), device=f.device) != t
        kappa = slope(q[:, placebo], m, f[placebo])
        R = q - kappa * f * m.unsqueeze(1)
        P = R[:, placebo]
        sigma = TO_DEVIATIONS * middle((P - middle(P)).abs().flatten())
        return cls(kappa, R[:, t], P, sigma)

    def scores(self, inside: Tensor) -> Tensor:
        """Return z, equation (9)."""
        return (self.c - middle(self.c[inside])) / self.sigma

    def judge(self, alarm: float) -> tuple[Tensor, Tensor]:
        """Return z and w of every site, equations (10) and (11)."""
        w = torch.ones_like(self.c)
        z = self.scores(w >= INSIDE)
        if z.max() <= alarm:
            return z, w
        for _ in range(PASSES):
            suspects = z.argsort(descending=True, stable=True)[: most(len(z))]
            w = torch.ones_like(z)
            w[suspects] = ((GONE - z[suspects]) / (GONE - SAFE)).clamp(0, 1)
            z = self.scores(w >= INSIDE)
        return z, w
