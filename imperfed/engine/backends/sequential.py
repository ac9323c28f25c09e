"""One site after another in the calling process, on the device of the population."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from imperfed.core.exchange import Query, Updates, send_model
from imperfed.core.labels.validity import Validity
from imperfed.core.mechanism import SumMechanism, Summed
from imperfed.core.network import Net
from imperfed.engine.backends.base import Reply, stacked
from imperfed.engine.backends.task_pool import attempt
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population, Scores
from imperfed.engine.site import OPENING, SiteUpdate


class SequentialBackend:
    """A backend that asks one site after another in the calling process."""

    opens_on_device = True
    can_break = False

    def __init__(self, population: Population) -> None:
        self.population = population
        self.notes: list[str] = []
        self.route: Route | None = None

    def start(self) -> None:
        """Do nothing: all rows are here."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange."""
        if round == OPENING:
            return self._open(number, sites)
        return {
            k: self._accept(k, round, number, attempt(self.population, (respond, (round, number, k)))) for k in sites
        }

    def _open(self, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange before round 0, in which no site may fail: errors are raised."""
        query, runtime = self.population.spec.opening()[number], self.population.runtime
        net, replies = self._same_for_all(query), dict[int, Reply | Failure]()
        for k in sites:
            update = runtime.respond(self.population.site(k), self.population.down(k, query), OPENING, number, net)
            replies[k] = Reply(0.0, update.up)
        return replies

    def _same_for_all(self, query: Query) -> Net | None:
        """Return the network, loaded once, if all sites receive the same numbers and none can change them."""
        layout, state = self.population.spec.layout, self.population.state
        if layout.size > layout.shared or len(state.servers) > 1 or query.send is not send_model:
            return None
        return self.population.load(0, state.server["w"], state.server["buffers"])

    def _accept(self, k: int, round: int, number: int, update: SiteUpdate | Failure) -> Reply | Failure:
        """Check an answer and commit what stays at the site."""
        if isinstance(update, Failure):
            return update
        site, exchange = self.population.site(k), self.population.spec.exchange(round, number)
        if failure := update.check(site.memory, exchange, self.population.state.servers[0]):
            return failure
        self.population.keep(k, update)
        # Copies: an answer may be a view of the network's gradient, which the next site overwrites.
        return Reply(update.loss, {name: t.detach().clone() for name, t in update.up.items()})

    def together(self, who: Sequence[int], replies: Mapping[int, Reply]) -> Mapping[str, Tensor]:
        """Return the answers, one row per site."""
        return stacked(who, replies)

    def shares(self, round: int, number: int, summed: Summed, updates: Updates) -> dict[int, Tensor | Failure]:
        """Return the sites' shares of a secret sum; within one process they need no masks."""
        spec, shares = self.population.spec, dict[int, Tensor | Failure]()
        assert isinstance(spec.privacy, SumMechanism)
        for k, weight, w in zip(summed.sites, summed.weights, updates["w"], strict=True):
            sent = self.population.down(k, spec.exchange(round, number))["w"]
            shares[k] = spec.privacy.share(sent, w, weight, summed, spec.simulated_key(round, k, w))
        return shares

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Make one pass over all rows, without a copy of the model per site."""
        population, fed, server = self.population, self.population.federation, self.population.state.server
        net = population.load(0, server["w"], server["buffers"])
        if self.route is None or self.route.sites != tuple(sites):
            self.route = Route.of(fed, population.spec.objective, sites)
        rows = population.state.rows
        return weighted_gradient(population.spec, fed.x, fed.labels, net, rows, self.route, weights)

    def evaluate(self, ahead: bool = False, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of the sites' models and of the global one."""
        wanted = self.population.tested if sites is None else sites
        return {k: self.population.evaluate(k) for k in wanted}, self.population.evaluate_global()

    def validate(self, sites: Sequence[int] | None = None) -> dict[int, Validity]:
        """Return how far the sites' models agree with the rows that they hold out."""
        wanted = self.population.here if sites is None else sites
        return {k: self.population.validate(k) for k in wanted}

    def gather(self) -> None:
        """Do nothing: the sites' memory is here."""

    def scatter(self) -> None:
        """Do nothing: the sites' memory is here."""

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of every training row, as probabilities in host memory."""
        parts = [self.population.infer_labels(k) for k in self.population.here]
        known = [part.cpu() for part in parts if part is not None]
        return torch.cat(known) if known else None

    def close(self) -> None:
        """Do nothing: no process was started."""


def respond(population: Population, round: int, number: int, k: int) -> SiteUpdate:
    """Return a site's answer to an exchange of a round."""
    down = population.down(k, population.spec.exchange(round, number))
    return population.runtime.respond(population.site(k), down, round, number)
