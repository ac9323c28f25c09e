"""The defence: what it asks the sites once, what it remembers of every round, and how much each answer counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import ImperfedError, UsageError, not_negative, positive
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Attribute, Federation
from imperfed.defences.placebo.contrast import INSIDE, Contrast, middle, moves, probe_rows
from imperfed.defences.protected import ProtectsGroup

FEWEST_GROUPS, FEWEST_SITES = 3, 4
PROBE_SEED = 0


@dataclass(frozen=True)
class Placebo(ProtectsGroup):
    """Give less weight to sites that raise an unprivileged class in one group's column more than in the others'."""

    name: ClassVar[str] = "placebo"
    burn_in: int = 3  # the number of rounds at the start that do not count
    first_decision: int = 8  # the number of rounds before the first in which a site can lose weight
    probe_rows: int = 64  # rows of random numbers on which the models are compared
    alarm: float = 4.0  # the score that one site must exceed before any loses weight

    def __post_init__(self) -> None:
        not_negative("defence", burn_in=self.burn_in, first_decision=self.first_decision, alarm=self.alarm)
        positive("defence", probe_rows=self.probe_rows)

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        attribute = self.groups(federation.attribute)
        if federation.x.ndim != 2:
            raise UsageError(
                f"{self.name} compares columns of a table, and here an input has the shape "
                f"{tuple(federation.x.shape[1:])}; use krum, median or trimmed-mean"
            )
        if len(attribute.values) < FEWEST_GROUPS:
            raise UsageError(
                f"{self.name} compares the target group with the others and needs at least {FEWEST_GROUPS} groups; "
                f"{attribute.name} has {len(attribute.values)}; use fairfedpapl"
            )
        self.roles(attribute, federation.classes)
        smallest = min(Counter(federation.groups).values(), default=len(federation.sites))
        if smallest < FEWEST_SITES:
            where = " in the smallest group of sites" if federation.groups else ""
            raise UsageError(f"{self.name} needs at least {FEWEST_SITES} sites, and there are {smallest}{where}")
        if on_duty < FEWEST_SITES:
            raise UsageError(
                f"{self.name} needs at least {FEWEST_SITES} sites in a round, and {on_duty} take part; "
                "set rounds.participation higher"
            )

    def init_state(self, sites: int) -> Tree:
        return {"sum_m": torch.zeros(sites, dtype=torch.float64), "rounds": torch.zeros(sites, dtype=torch.float64)}

    def opening(self, attribute: Attribute | None) -> tuple[Query, ...]:
        groups = self.groups(attribute)

        def respond(site: SiteContext) -> Tree:
            return {"group shares": (groups.of(site.x) > 0).double().mean(0)}

        return (Query("group shares", self.keep_shares, respond=respond),)

    def keep_shares(self, memory: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Remember f_{n,g}, the sites' claims, and begin the sums that have one column per group."""
        G = len(self.groups(context.attribute).values)
        for site, answer in zip(updates.who, updates.parts, strict=True):
            shares = answer.get("group shares", torch.empty(0))
            if shares.shape != (G,) or not ((shares >= 0) & (shares <= 1)).all():
                raise ImperfedError(f"{context.sites[site]}: its shares of {G} groups are not {G} numbers in 0 .. 1")
        f = torch.stack([answer["group shares"].double() for answer in updates.parts])
        return memory | {"shares": f, "sum_q": torch.zeros_like(f)}

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        if context.round >= self.burn_in:
            memory = self.remember(memory, sent, updates, context)
        z, w = torch.full_like(updates.n, torch.nan).double(), torch.ones_like(updates.n).double()
        if context.round >= self.first_decision:
            judged = memory["rounds"][updates.index] > 0
            z[judged], w[judged] = self.judge(memory, updates.index[judged], context)
        elif context.round == 0:
            context.notes.append(f"{self.name}: no site loses weight before round {self.first_decision + 1}")
        for site, score, weight in zip(updates.who, z.tolist(), w.tolist(), strict=True):
            context.record_verdict(site, None if score != score else score, weight, weight < INSIDE)
        return weighted(updates, w), memory

    def remember(self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Add this round's q^r and m^r, of the sites whose model moved, to the sums of equation (4)."""
        groups, (_, u) = self.groups(context.attribute), self.roles(context.attribute, context.classes)
        columns = slice(groups.first, groups.first + len(groups.values))
        probes = probe_rows(self.rows(context), columns)
        moved = (updates["w"] != sent["w"]).any(1)
        who, new = updates.index[moved], moves(context.net, sent, updates, probes, u)
        added = {"sum_q": new[0][moved], "sum_m": new[1][moved], "rounds": torch.ones_like(new[1][moved])}
        return memory | {name: memory[name].index_add(0, who, t) for name, t in added.items()}

    def rows(self, context: ServerContext) -> Tensor:
        """Return B, the same in every round and run."""
        inputs, draw = context.public.shape[1], torch.Generator().manual_seed(PROBE_SEED)
        return torch.randn(self.probe_rows, inputs, generator=draw).to(context.public.device)

    def judge(self, memory: Tree, who: Tensor, context: ServerContext) -> tuple[Tensor, Tensor]:
        """Return z and w of these sites; z is NaN, and w is 1, where they cannot be compared."""
        groups = self.groups(context.attribute)
        rounds = memory["rounds"][who]
        undecided = torch.full_like(rounds, torch.nan), torch.ones_like(rounds)
        if len(who) < FEWEST_SITES:
            context.notes.append(f"{self.name}: {len(who)} sites can be compared, and {FEWEST_SITES} are needed")
            return undecided
        q, m = memory["sum_q"][who] / rounds.unsqueeze(1), memory["sum_m"][who] / rounds
        t = self.pick("target", self.target, groups.values)
        contrast = Contrast.of(q, m, middle(memory["shares"]), t)
        if contrast.sigma <= 0:
            context.notes.append(f"{self.name}: the groups' columns do not vary between sites, so nobody is judged")
            return undecided
        z, w = contrast.judge(self.alarm)
        highest, fewer = float(z.max()), int((w < 1).sum())
        context.notes.append(f"{self.name} looked: highest score {highest:.2f}, {fewer} sites below their full weight")
        return z, w


def weighted(updates: Updates, w: Tensor) -> Updates:
    """Return the answers with w_n times the rows of each site, equation (12); without those whose weight is 0."""
    kept = updates.only(w.nonzero().flatten())
    return replace(kept, n=kept.n * w[w > 0].to(kept.n))
