"""Algorithm 8: score the sites, split the scores, update the confidences, and pass on the trusted sites' answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation
from imperfed.defences.fairfedpapl import evidence
from imperfed.defences.fairfedpapl.splitting import GuardSplit, clear, too_near, too_usual, two_means
from imperfed.defences.protected import ProtectsGroup
from imperfed.nn.inversion import Dummies, Ensemble, Reconstruction, invert

Guard = Literal["", "gap", "distance", "law", "none"]
Freeze = Literal["", "low", "both", "clamp"]
LAW_GAP = 0.05
"""The smallest distance between the groups' means that the guard by law accepts."""


@dataclass(frozen=True)
class FairFedPAPL(ProtectsGroup):
    """Leave out sites whose updates, inverted into rows, teach an unprivileged class to one group."""

    name: ClassVar[str] = "fairfedpapl"
    variant: Literal["ours", "thesis"] = "ours"  # thesis: score, smoothing and guard as written there
    score: Literal["label", "pool", "probe", "path"] = "label"  # f_n
    dummy_rows: int = 100  # rows reconstructed for each site
    dummy_steps: int = 20  # steps of the inversion
    dummy_lr: float = 0.1  # learning rate of the inversion
    mu: float = 1e-4  # Eq. 5.2, weight of the total variation
    smoothing: float = 0.8  # smoothing of f_n over rounds
    guard: Guard = ""  # empty: gap for the score label, distance for the others; law is stricter
    deviations: float = 4.0  # guard gap: least distance of the means, in standard deviations of the lower group
    gap: float = 0.3  # guard gap: least distance of the means, in units of the score
    level: float = 0.01  # guards distance and law: how often scores without groups may be split
    rho: float = 0.1  # rho, step size of the confidence
    theta_low: float = 0.1  # theta_low
    theta_high: float = 0.9  # theta_high
    kappa: float = 0.5  # kappa, the least confidence with which a site is merged
    freeze: Freeze = ""  # where q_n freezes: low (ours), both thetas (the thesis's text), or never: clamp (its box)

    def __post_init__(self) -> None:
        positive(
            "defence", dummy_rows=self.dummy_rows, dummy_steps=self.dummy_steps, dummy_lr=self.dummy_lr, rho=self.rho
        )
        not_negative("defence", mu=self.mu, smoothing=self.smoothing, deviations=self.deviations)
        if self.smoothing >= 1 or self.rho > 1 or not 0 < self.level < 1:
            raise UsageError("defence.smoothing and defence.level must be below 1, defence.rho at most 1")
        if not 0 <= self.theta_low < self.kappa <= 0.5 < self.theta_high <= 1:
            raise UsageError(
                "confidences start at 0.5: defence.theta_low < defence.kappa <= 0.5 < defence.theta_high is needed"
            )

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        self.roles(federation.attribute, federation.classes)

    def init_state(self, sites: int) -> Tree:
        return {"q": torch.full((sites,), 0.5), "f": torch.zeros(sites), "seen": torch.zeros(sites)}

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        who = updates.index
        f = self.scores(sent, updates, context)
        defined = f.isfinite()
        judged = who[defined]
        memory = self.smooth(memory, judged, f[defined])
        bad = self.split(memory["f"][judged], context)
        if bad is not None:
            memory = memory | {"q": memory["q"].index_copy(0, judged, self.trust(memory["q"][judged], bad))}
        q = memory["q"][who]
        kept = q > self.kappa if self.variant == "thesis" else q >= self.kappa  # Alg. 8, line 17
        for row, site in enumerate(updates.who):
            score = float(memory["f"][site]) if defined[row] else None
            context.record_verdict(site, score, float(q[row]), not kept[row])
        undefined = [context.sites[site] for row, site in enumerate(updates.who) if not defined[row]]
        if undefined:
            context.notes.append(f"{self.name}: no score for {', '.join(undefined)}, left out of the split")
        return (updates.only(kept.nonzero().flatten()) if kept.any() else None), memory

    def scores(self, sent: Tree, updates: Updates, context: ServerContext) -> Tensor:
        """Return f_n of every site that answered; NaN where it is undefined."""
        t, u = self.roles(context.attribute, context.classes)
        start = Dummies.start(self.dummy_rows, context.public.shape[1:], len(context.classes), context.draw)
        start = start.to(context.public.device)
        if self.variant == "ours" and self.score in ("probe", "path"):
            return evidence.shift(self.score, context.net, sent, updates, start.x, t, u)
        rebuilt = self.reconstruct(sent, updates, start, context)
        models = Ensemble(context.net, updates["w"], updates["buffers"])
        if self.variant == "thesis":
            f = evidence.opportunity(models, rebuilt, t, u)  # Alg. 8, line 6
        else:
            f = evidence.label(rebuilt, t, u) if self.score == "label" else evidence.pool(models, rebuilt, t, u)
        moved = (updates["w"] != sent["w"]).any(1)  # a site that returned the model unchanged gives no evidence
        return f.masked_fill(~moved, torch.nan)

    def reconstruct(self, sent: Tree, updates: Updates, start: Dummies, context: ServerContext) -> Reconstruction:
        """Return D_rep of all sites."""
        h_n, h = updates["w"], sent["w"]
        if self.variant == "thesis":
            at, buffers, v = h_n, updates["buffers"], (h_n - h) / context.lr  # Alg. 8, line 3
        else:
            at, buffers, v = h, sent["buffers"], (h - h_n) / context.lr
        rebuilt = invert(context.net, at, buffers, v, start, self.dummy_steps, self.dummy_lr, self.mu)  # Alg. 8, line 5
        cosine = rebuilt.cosine
        low, mean, high = (float(c) for c in (cosine.min(), cosine.mean(), cosine.max()))
        context.notes.append(f"{self.name} looked: cosine reached {mean:.2f} ({low:.2f} to {high:.2f})")
        return rebuilt

    def smooth(self, memory: Tree, who: Tensor, f: Tensor) -> Tree:
        """Return the memory with the sites' scores smoothed over the rounds in which they had one."""
        old, seen = memory["f"][who], memory["seen"][who]
        keep = torch.where(seen > 0, 0.0 if self.variant == "thesis" else self.smoothing, 0.0)
        new = memory["f"].index_copy(0, who, keep * old + (1 - keep) * f)
        return memory | {"f": new, "seen": memory["seen"].index_copy(0, who, seen + 1)}

    def split(self, f: Tensor, context: ServerContext) -> Tensor | None:
        """Return which sites are in the group of adversaries (Alg. 8, line 9); None where there is no such group."""
        cut, n = two_means(f), len(f)
        if cut is None:
            why: str | None = f"{n} scores are too few or all equal"
        elif self.variant == "thesis" or self.guard == "none":
            why = None
        else:
            why = self.objection(cut, n)
        if cut is None or why:
            context.notes.append(f"{self.name} looked: no split, {why}")
            return None
        context.notes.append(f"{self.name} looked: {cut.members} of {n} sites above {cut.threshold:.3f}")
        return cut.high

    def objection(self, cut: GuardSplit, n: int) -> str | None:
        """Return why the guard rejects a split; None where it accepts it."""
        guard = self.guard or ("gap" if self.score == "label" else "distance")
        if guard == "law":
            return too_usual(cut, n, self.level, LAW_GAP)
        if guard == "distance":
            return too_near(cut, n, clear(n, self.level), 0.0)
        return too_near(cut, n, self.deviations, self.gap)

    def trust(self, q: Tensor, bad: Tensor) -> Tensor:
        """Return the confidences after a split (Alg. 8, lines 10 to 16)."""
        moved = (1 - self.rho) * q + self.rho * (~bad).to(q.dtype)  # Alg. 8, lines 12 and 14
        above, below = q > self.theta_low, q < self.theta_high
        moves = {
            "low": above & (bad | below),
            "both": above & below,
            "clamp": torch.where(bad, above, below),
        }[self.freeze or ("both" if self.variant == "thesis" else "low")]
        return torch.where(moves, moved, q)
