"""One site after the other in the calling process, on whatever device the bench is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core import Tree
from imperfed.engine import site as at_site
from imperfed.engine.crew import Failure, attempt
from imperfed.engine.site import Answer, Bench, Scores
from imperfed.engine.staff import Reply
from imperfed.engine.together import Route, weighted_gradient
from imperfed.network import Net


class Loop:
    """Every site's answer, one by one."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.notes: list[str] = []
        self.route: Route | None = None

    def open(self, number: int) -> tuple[Tree, ...]:
        """The answers to an opening exchange."""
        exchange = self.bench.job.algorithm.opening()[number]
        assert exchange.answer is not None
        sites, seated = range(len(self.bench.job.federation.sites)), self._same_for_all()
        return tuple(at_site.consult(self.bench, -1, k, exchange, exchange.answer, seated).up for k in sites)

    def _same_for_all(self) -> Net | None:
        """The network at the first weights where all sites receive the same and none can change it: loaded once."""
        layout, state = self.bench.job.layout, self.bench.state
        if layout.size > layout.shared or len(state.servers) > 1:
            return None
        return self.bench.take_place(0, state.server["w"], state.server["buffers"])

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """The answers to an exchange of a round."""
        return {k: self._hand_in(k, attempt(self.bench, (at_site.respond, (round, number, k)))) for k in sites}

    def _hand_in(self, site: int, answer: Answer | Failure) -> Reply | Failure:
        """An answer that was accepted, after what stays at the site has been kept there."""
        if isinstance(answer, Failure):
            return answer
        if fault := answer.fault(self.bench.state):
            return Failure(f"its answer was refused: {fault}")
        answer.keep(self.bench, site)
        # Copies: an answer may be a view of the network's gradient, and the next site overwrites it.
        return Reply(answer.loss, {name: t.detach().clone() for name, t in answer.up.items()})

    def together(self, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """In one pass over all rows, without a copy of the model a site."""
        server = self.bench.state.server
        net = self.bench.take_place(0, server["w"], server["buffers"])
        if self.route is None or self.route.sites != tuple(sites):
            self.route = Route.of(self.bench.job, sites)
        return weighted_gradient(self.bench.job, net, self.bench.state.rows, self.route, weights)

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site's model and of the global one."""
        sites = range(self.bench.job.judge.sites)
        return {k: at_site.evaluate(self.bench, k) for k in sites}, at_site.evaluate_common(self.bench)

    def beliefs(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row, in the host's memory."""
        parts = [at_site.believe(self.bench, k) for k in range(len(self.bench.job.federation.sites))]
        known = [part.cpu() for part in parts if part is not None]
        return torch.cat(known) if known else None

    def close(self) -> None:
        """Nobody was hired."""
