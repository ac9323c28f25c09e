"""One site after the other in the calling process, on whatever device the bench is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.network import Net
from imperfed.engine import site as at_site
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.task_pool import Failure, attempt
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.site import Scores, SiteRuntime, SiteUpdate


class SequentialBackend:
    """Every site's answer, one by one."""

    def __init__(self, runtime: SiteRuntime) -> None:
        self.runtime = runtime
        self.notes: list[str] = []
        self.route: Route | None = None

    def ask_opening(self, number: int) -> tuple[Tree, ...]:
        """The answers to an opening exchange."""
        exchange = self.runtime.spec.algorithm.opening()[number]
        assert exchange.respond is not None
        sites, seated = range(len(self.runtime.spec.federation.sites)), self._same_for_all()
        return tuple(at_site.consult(self.runtime, -1, k, exchange, exchange.respond, seated).up for k in sites)

    def _same_for_all(self) -> Net | None:
        """The network at the first weights where all sites receive the same and none can change it: loaded once."""
        layout, state = self.runtime.spec.layout, self.runtime.state
        if layout.size > layout.shared or len(state.servers) > 1:
            return None
        return self.runtime.load_site(0, state.server["w"], state.server["buffers"])

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """The answers to an exchange of a round."""
        return {k: self._hand_in(k, attempt(self.runtime, (at_site.respond, (round, number, k)))) for k in sites}

    def _hand_in(self, site: int, answer: SiteUpdate | Failure) -> Reply | Failure:
        """An answer that was accepted, after what stays at the site has been kept there."""
        if isinstance(answer, Failure):
            return answer
        if fault := answer.fault(self.runtime.state):
            return Failure(f"its answer was refused: {fault}")
        answer.keep(self.runtime, site)
        # Copies: an answer may be a view of the network's gradient, and the next site overwrites it.
        return Reply(answer.loss, {name: t.detach().clone() for name, t in answer.up.items()})

    def weighted_gradient(self, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """In one pass over all rows, without a copy of the model a site."""
        server = self.runtime.state.server
        net = self.runtime.load_site(0, server["w"], server["buffers"])
        if self.route is None or self.route.sites != tuple(sites):
            self.route = Route.of(self.runtime.spec, sites)
        return weighted_gradient(self.runtime.spec, net, self.runtime.state.rows, self.route, weights)

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site's model and of the global one."""
        sites = range(self.runtime.spec.evaluator.sites)
        return {k: at_site.evaluate(self.runtime, k) for k in sites}, at_site.evaluate_common(self.runtime)

    def inferred_labels(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row, in the host's memory."""
        parts = [at_site.infer_labels(self.runtime, k) for k in range(len(self.runtime.spec.federation.sites))]
        known = [part.cpu() for part in parts if part is not None]
        return torch.cat(known) if known else None

    def close(self) -> None:
        """Nobody was hired."""
