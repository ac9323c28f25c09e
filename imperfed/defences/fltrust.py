"""FLTrust (Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021).

Source: the form was checked against third parties' re-implementations; constants (100 root rows, alpha = 1) are from
memory, unverified.

    symbol    where it lives                                              does it travel
    g_k       updates["w"] - sent["w"]                                    up
    g_0       the server's own update on its labelled rows (split.trusted)   never
    TS_k      trust: max(0, cos(g_k, g_0))                                never; reported as the confidence in a site
    g         the mean of the g_k at g_0's length, weighted by TS_k       never; all answers are replaced by it
    alpha     alpha                                                       never

The server makes the algorithm's own local steps, as many as a site makes on average. Other answers, such as
normalisation buffers, are averaged by TS_k. There is no bound on the number of adversaries: what protects are the
server's rows.

Departs from the paper in: where no site is trusted, the model stays as it was, since the paper divides by 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Train, Updates, send_model
from imperfed.core.federation import TO_TRUST, Federation

NOBODY = 1e-12
"""The sum of trust below which no site is trusted."""


@dataclass(frozen=True)
class FLTrust(Defence):
    """Trust a site's update as far as it points where the server's own update points; all are scaled to its length."""

    name: ClassVar[str] = "fltrust"
    alpha: float = 1.0  # alpha, the server's step size

    def __post_init__(self) -> None:
        positive("defence", alpha=self.alpha)

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        if federation.trusted is None:
            raise UsageError(f"{self.name} compares updates with the server's own: {TO_TRUST}")
        if algorithm.not_mixable_because:
            raise UsageError(
                f"{self.name} replaces all answers by one, and under {algorithm.name} {algorithm.not_mixable_because}"
            )
        more = any(e.send is not send_model for e in algorithm.exchanges(0) if isinstance(e, Train))
        if more or algorithm.overridden & {"init_site", "prepare"}:
            raise UsageError(
                f"{self.name} makes the sites' local steps at the server, and under {algorithm.name} these need more "
                "than the model and the rows"
            )

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        start = {"w": sent["w"][0], "buffers": sent["buffers"][0]}  # the same for all sites: see `check`
        g_0 = context.train(start).net.w[: len(start["w"])] - start["w"]
        g_k = updates["w"] - sent["w"]
        cosines = cosine(g_k, g_0)
        TS = cosines.clamp(min=0)  # TS_k = max(0, cos(g_k, g_0))
        for k, c, trust in zip(updates.who, cosines.tolist(), TS.tolist(), strict=True):
            context.record_verdict(k, c, trust, trust == 0)
        if TS.sum() < NOBODY:
            return None, memory
        share = TS / TS.sum()
        trees = {name: torch.tensordot(share, t.double(), 1).to(t.dtype) for name, t in updates.trees.items()}
        trees["w"] = start["w"] + self.alpha * trusted_mean(g_k, g_0, share)
        return replace(updates, trees={name: t.expand_as(updates[name]) for name, t in trees.items()}), memory


def cosine(g: Tensor, g_0: Tensor) -> Tensor:
    """Return cos(g_k, g_0) of every update, in double precision; 0 for an update without length."""
    g, g_0 = g.double(), g_0.double()
    lengths = torch.linalg.vector_norm(g, dim=1) * torch.linalg.vector_norm(g_0)
    return torch.where(lengths > 0, g @ g_0 / torch.where(lengths > 0, lengths, 1.0), 0.0)


def trusted_mean(g: Tensor, g_0: Tensor, share: Tensor) -> Tensor:
    """Return g = sum_k share_k (|g_0| / |g_k|) g_k."""
    lengths = torch.linalg.vector_norm(g.double(), dim=1)
    scaled = torch.linalg.vector_norm(g_0.double()) / torch.where(lengths > 0, lengths, 1.0)  # g^_k = |g_0| / |g_k| g_k
    mean: Tensor = (share * scaled) @ g.double()
    return mean.to(g.dtype)
