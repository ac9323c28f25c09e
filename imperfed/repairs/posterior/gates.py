"""The decision: which labels are changed to the most probable class, Eqs. 19-26.

With clean rows (B1), a site puts the clean rows into its own noise model and sees how many right labels a lead of more
than h would change. The sites and the server choose h together, and a site where changes would not pay makes none.
Without (B2), a site asks for the larger a lead the less noise it estimates, and below 3 % it leaves its labels alone.

    exchange    a site sends                     the server sends
    gate (B1)   n_k net_k(h) for 41 values of h  R of the clean rows, and their classes
    decide      how many labels it changed,      h (B1)
                and its estimated noise
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.posterior.axes import total
from imperfed.repairs.posterior.noise_model import leads, posterior, ratio, tempered

THRESHOLDS = (0.0, *(0.05 * (8 / 0.05) ** (i / 39) for i in range(40)))
"""h: the leads that are compared."""
SURE = 0.9
"""The quantile of the damage that a gate reckons with."""
CORRECT = 0.85
"""The share of changes of wrong labels that are taken to find the right one."""
LEAST_NOISE, MUCH_NOISE, LARGEST_LEAD = 0.03, 0.2, 2.0
"""B2: the noise below which a site is left alone, that from which any lead suffices, and the lead asked for near 0."""


@dataclass(frozen=True)
class LeadGate:
    """The exchange before the decision, with clean rows."""

    def exchanges(self) -> tuple[Query, ...]:
        """Return its exchange."""
        return (Query("gate", self.choose, self.send_clean, respond=self.gains),)

    def gains(self, site: SiteView) -> Tree:
        """Return n_k net_k(h) for every h, Eq. 23, and keep net_k."""
        Q, J, g = site.memory["Q"], site.memory["J"], site.labels.values
        site.memory["net"] = net_gain(leads(Q, g), J, site.down["R"], site.down["y"])
        return {"net": len(g) * site.memory["net"]}

    def send_clean(self, server: Tree, site: int) -> Tree:
        """Return R and the classes of the clean rows."""
        R = ratio(tempered(server["logits"], server["temperatures"]), server["mean p"])
        return {"R": R[0], "y": server["y"]}

    def choose(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Choose the h that is best for all sites together, the lowest of equals, Eq. 24."""
        return server | {"h": total(updates, "net").argmax()}


def net_gain(lead: Tensor, J: Tensor, R: Tensor, y: Tensor) -> Tensor:
    """Return net_k(h) of a site for every h: right changes less damage, as shares of its rows; Eqs. 19-23."""
    h = torch.tensor(THRESHOLDS, dtype=lead.dtype)[:, None]
    right = J.diagonal()
    v = right[y] / y.bincount(minlength=len(J))[y]
    v = v / v.sum()  # Eq. 19
    changed = (lead > h).double().mean(1)  # ch_k, Eq. 22
    harmed = ((leads(posterior(R, J, y), y) > h) * v).sum(1)  # d_k, Eq. 20
    damage = torch.minimum(upper_bound(harmed, 1 / v.square().sum()) * right.sum(), changed)  # Eqs. 21 and 22
    return CORRECT * (changed - damage) - damage  # Eq. 23


def upper_bound(share: Tensor, rows: Tensor) -> Tensor:
    """Return a bound on a share that was measured on so many rows: a quantile of a Beta distribution, Eq. 21."""
    from scipy.special import betaincinv

    a, b = share * rows + 1, (rows * (1 - share)).clamp(min=1e-9)
    return torch.from_numpy(betaincinv(a.cpu().numpy(), b.cpu().numpy(), SURE)).to(share.device)


def gate_of(net: Tensor, chosen: int) -> float:
    """Return the lead that a site asks for with clean rows, Eq. 24; infinity where changes would not pay."""
    return THRESHOLDS[chosen] if net[chosen] > 0 else torch.inf


def threshold(noise: float) -> float:
    """Return the lead that a site asks for without clean rows, Eq. 25."""
    return torch.inf if noise < LEAST_NOISE else LARGEST_LEAD * max(0.0, 1 - noise / MUCH_NOISE)
