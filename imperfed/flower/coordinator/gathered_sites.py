"""The sites of a run once all of them have said what they hold: what the coordinator knows, and what each is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.data.federate import FederatedData
from imperfed.data.moments import Moments
from imperfed.data.scale import Scale
from imperfed.data.site_description import SiteInfo
from imperfed.data.site_files import ServerFiles
from imperfed.engine.population import capped
from imperfed.experiments.config import Config
from imperfed.flower.messages.run_info import NO_TRIAL, RunInfo
from imperfed.flower.messages.transport import Transport


@dataclass(frozen=True)
class GatheredSites:
    """The sites of one run; several engines may ask them, one after the other."""

    transport: Transport
    central: ServerFiles
    """The coordinator's own data."""
    infos: tuple[SiteInfo, ...]
    run: str
    """The name of the run."""
    declaration: str
    max_share: float = 0.0
    """The most weight of one site by its rows; 0: no limit."""
    edges: Tensor = field(default_factory=lambda: torch.empty(0))
    """Of the bins of every column, for models that take them; else empty."""
    search: bool = False
    """Whether the run is a search."""

    @cached_property
    def scale(self) -> Scale:
        """The scale of the inputs, from the sums of all sites, and the bins."""
        return replace(self.central.scale(weighed(self.infos, self.max_share)), edges=self.edges)

    def data(self) -> FederatedData:
        """Return the federation as the coordinator knows it: sizes and no rows."""
        return self.central.data(self.infos, self.scale)

    def with_all_rows(self) -> GatheredSites:
        """Return the same sites, which hold no rows out any more; bins are to be learned from all rows."""
        infos = (replace(info, rows=info.rows + info.held_out, held_out=0) for info in self.infos)
        return replace(self, infos=tuple(infos), edges=torch.empty(0))

    @property
    def features(self) -> int:
        """The number of features of sparse inputs; 0 if they are not sparse."""
        return max(info.features for info in self.infos)

    def fitting(self, config: Config) -> Config:
        """Return settings that say how many features sparse inputs have: a site may not know them all."""
        return replace(config, model=replace(config.model, features=config.model.features or self.features))

    def told(self, config: Config, trial: int = NO_TRIAL, alive: Sequence[int] = ()) -> list[RunInfo]:
        """Return what each site is told about the run, which every message repeats; `trial`, `alive`: in a search."""
        settings, annotated = config.toml(), anybody(self.infos)
        return [
            RunInfo(self.run, settings, self.declaration, k, self.scale, annotated, trial, tuple(alive), self.search)
            for k in range(len(self.infos))
        ]


def weighed(infos: Sequence[SiteInfo], share: float) -> list[SiteInfo]:
    """Return what the sites reported, with the sums of a site that has more than its share lowered to that share."""
    counts = capped([info.rows for info in infos], share)
    return [
        info
        if count == info.rows or not info.sums
        else replace(info, sums=Moments.of_tree(info.sums).weighted(count / info.rows).tree())
        for info, count in zip(infos, counts, strict=True)
    ]


def anybody(infos: Sequence[SiteInfo]) -> Tree:
    """Return which classes any site annotates, where labels may be missing."""
    known = [info.annotated["classes"] for info in infos if info.annotated]
    return {"classes": torch.stack(known).any(0)} if known else {}
