"""FairFedPAPL and the placebo contrast together: each judges all answers, and the lower of its two weights counts.

The two fail in different places: FairFedPAPL where sites differ by nature, the placebo contrast against an attacker who
ties the class to all groups alike. Together they find more adversaries, and raise the false alarms of both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree, part_of, prefixed
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Attribute, Federation
from imperfed.defences.fairfedpapl import FairFedPAPL
from imperfed.defences.placebo import Placebo
from imperfed.defences.protected import ProtectsGroup


@dataclass(frozen=True)
class FairFedPAPLOrPlacebo(FairFedPAPL, Placebo):
    """Leave out or give less weight to sites that FairFedPAPL or the placebo contrast suspects."""

    # It inherits for the settings of both; everything else is up to the two themselves, each with a memory of its own.
    name: ClassVar[str] = "fairfedpapl+placebo"

    def __post_init__(self) -> None:
        _ = self.members  # each checks its settings

    @property
    def members(self) -> tuple[ProtectsGroup, ...]:
        """The two defences, with their shares of the settings."""
        return tuple(kind(**{f.name: getattr(self, f.name) for f in fields(kind)}) for kind in (FairFedPAPL, Placebo))

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        for member in self.members:
            member.check(federation, algorithm, on_duty)

    def init_state(self, sites: int) -> Tree:
        first, second = (prefixed(f"{member.name}/", member.init_state(sites)) for member in self.members)
        return first | second

    def opening(self, attribute: Attribute | None) -> tuple[Query, ...]:
        return tuple(query.on_part(f"{m.name}/") for m in self.members for query in m.opening(attribute))

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        n = updates.n
        for member in self.members:
            before, prefix = len(context.verdicts), f"{member.name}/"
            kept, own = member.inspect(part_of(memory, prefix), sent, updates, context)
            memory = memory | prefixed(prefix, own)
            n = torch.minimum(n, rows_counted(kept, updates))
            context.verdicts[before:] = [replace(v, by=member.name) for v in context.verdicts[before:]]
        rows = n.nonzero().flatten()
        return (replace(updates.only(rows), n=n[rows]) if len(rows) else None), memory


def rows_counted(kept: Updates | None, updates: Updates) -> Tensor:
    """Return with how many rows every answer counts among those kept; 0 for an answer that was not kept."""
    n = torch.zeros_like(updates.n)
    if kept is not None:
        n[[updates.who.index(site) for site in kept.who]] = kept.n
    return n
