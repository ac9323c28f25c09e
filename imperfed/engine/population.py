"""All sites of a run as one process sees them: their rows and memory, the server's memory, and the evaluation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.exchange import Exchange
from imperfed.core.federation import Federation
from imperfed.core.labels.validity import UNKNOWN, Validity
from imperfed.core.network import Net
from imperfed.engine.local_training import SiteData
from imperfed.engine.site import RunSpec, Site, SiteRuntime, SiteUpdate, logits_of, validate
from imperfed.engine.state import Groups, State

Scores = dict[str, tuple[float, int]]
"""Each metric's value, and the number of examples behind it."""


class ModelEvaluator(Protocol):
    """What the engine knows about evaluation: it passes a network and gets scores."""

    @property
    def sites(self) -> int:
        """The number of sites with a test set of their own."""

    @property
    def figure_names(self) -> tuple[tuple[str, ...], ...]:
        """The names that the scores of one site can have, in order; those of an honest site are one of these rows."""

    def site(self, site: int, net: Net) -> Scores:
        """Return a network's scores on one site's own test set."""

    def common(self, net: Net) -> Scores:
        """Return a network's scores on the common test set; empty where there is none."""

    def to(self, device: torch.device) -> Self:
        """Return the same evaluator with its inputs on a device."""

    def of_sites(self, sites: Collection[int], common: bool) -> Self:
        """Return an evaluator with the test rows of these sites alone; `common`: and with those of no site."""


@dataclass(frozen=True)
class Share:
    """The sites that one process holds, where a run has several; all sites keep their numbers."""

    sites: tuple[int, ...]
    tested: tuple[int, ...]
    """The sites whose test rows it holds."""

    @cached_property
    def _held(self) -> frozenset[int]:
        return frozenset(self.sites)

    def among(self, sites: Sequence[int]) -> tuple[int, ...]:
        """Return those of some sites that this process holds, in the same order."""
        return tuple(k for k in sites if k in self._held)


@dataclass
class Population:
    """The sites of a run. For sites elsewhere, only the numbers of rows are here, neither rows nor memory."""

    runtime: SiteRuntime
    federation: Federation
    state: State
    evaluator: ModelEvaluator
    max_share: float = 0.0
    """The most weight that one site may have by its number of rows; 0: no limit."""
    share: Share | None = None
    """None: all sites are here."""

    @property
    def spec(self) -> RunSpec:
        """What stays the same during the run."""
        return self.runtime.spec

    @property
    def here(self) -> Sequence[int]:
        """The sites whose rows are here."""
        return range(len(self.federation.sites)) if self.share is None else self.share.sites

    @property
    def tested(self) -> Sequence[int]:
        """The sites whose test rows are here."""
        return range(self.evaluator.sites) if self.share is None else self.share.tested

    @cached_property
    def groups(self) -> Groups:
        """Which sites share a model."""
        return Groups.of(self.federation)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of training rows at each site."""
        return self.federation.sizes()

    @cached_property
    def counts(self) -> list[float]:
        """The number of rows with which each site counts: what it has, unless that is more than its largest share."""
        return capped(self.sizes, self.max_share)

    def site(self, k: int) -> Site:
        """Return one site, its rows and memory as views."""
        return Site(k, self.rows(*self.federation.starts[k : k + 2]), *self.state.kept_at(k))

    def keep(self, k: int, update: SiteUpdate) -> None:
        """Commit what stays at a site, once its answer has been accepted."""
        site = self.site(k)
        site.keep(update)
        self.state.write_back(k, site.personal, site.memory)

    def rows(self, start: int, stop: int) -> SiteData:
        """Return the data of the rows start .. stop - 1, as views."""
        labels = self.federation.labels.between(start, stop)
        rows = {name: t[start:stop] for name, t in self.state.rows.items()}
        return SiteData(self.federation.inputs(start, stop), labels, rows, self.spec.objective.site_stats(labels))

    def down(self, k: int, exchange: Exchange) -> Tree:
        """Return what a site receives in an exchange."""
        group, place = self.groups.homes[k]
        server = self.state.servers[group]
        return {"w": server["w"], "buffers": server["buffers"]} | exchange.send(server, place)

    def shared_model(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the shared weights and buffers with which a site predicts."""
        group, place = self.groups.homes[k]
        return self.spec.algorithm.model(self.state.servers[group], place)

    def predictor(self, evaluated: int) -> Net:
        """Return the network with which an evaluated site predicts: its own, unless all rows were pooled."""
        k = 0 if self.spec.algorithm.pools_data else evaluated
        return self.load(k, *self.shared_model(k))

    def load(self, k: int, w: Tensor, buffers: Tensor) -> Net:
        """Return the network with these shared numbers and the personal ones of a site, in evaluation mode."""
        self.runtime.net.train(False)
        return self.runtime.net.load(self.spec.layout.join(w, buffers, self.state.personal_of(k)))

    def evaluate(self, k: int) -> Scores:
        """Return the scores of a site's model on its own test set."""
        return self.evaluator.site(k, self.predictor(k))

    def evaluate_global(self) -> Scores:
        """Return the scores of the global model on the common test set; empty where either does not exist."""
        personal = self.state.personal.shape[1] > 0
        if personal or len(self.state.servers) > 1 or not self.spec.algorithm.has_global_model:
            return {}
        server = self.state.server
        return self.evaluator.common(self.load(0, server["w"], server["buffers"]))

    def validate(self, k: int) -> Validity:
        """Return how far a site's model agrees with the labels of the rows that the site holds out."""
        held = self.federation.validation
        return UNKNOWN if held is None else validate(self.load(k, *self.shared_model(k)), held, k)

    def held_out_logits(self, k: int) -> Tensor:
        """Return the logits of a site's model for the rows that the site holds out, in host memory."""
        held = self.federation.validation
        assert held is not None
        return logits_of(self.load(k, *self.shared_model(k)), held.at(k)[0]).cpu()

    def infer_labels(self, k: int) -> Tensor | None:
        """Return the labels that a site infers for its training rows, as probabilities; None if it infers none."""
        return self.runtime.infer_labels(self.site(k), self.predictor(k))

    def move_to(self, device: torch.device) -> None:
        """Move data, network and the server's memory to a device; what sites keep stays in host memory."""
        self.federation, self.evaluator = self.federation.to(device), self.evaluator.to(device)
        self.state.move_to(device)
        self.runtime.move_to(device)


def lowering(sizes: Sequence[int], share: float) -> list[float]:
    """Return by how much each size is lowered by `capped`: 1 if it is not."""
    return [count / n if n else 1.0 for count, n in zip(capped(sizes, share), sizes, strict=True)]


def capped(sizes: Sequence[float], share: float) -> list[float]:
    """Return the sizes, the largest lowered to one bound, so that none is more than a share of them all; 0: no limit.

    A share that is too small for so many sizes makes all of them equal.
    """
    counts = [float(n) for n in sizes]
    if not 0 < share < 1 or max(counts) <= share * sum(counts):
        return counts
    ordered = sorted(counts)
    for lowered in range(1, len(counts)):
        others, rest = ordered[:-lowered], 1 - share * lowered
        if rest > 0 and (bound := share * sum(others) / rest) >= others[-1]:
            return [min(n, bound) for n in counts]
    return [ordered[0]] * len(counts)
