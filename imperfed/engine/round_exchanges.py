"""The exchanges of a round: the sites on duty are asked, failures are handled, and answers are stacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.context import ServerContext
from imperfed.core.errors import DataError, DivergedError, ImperfedError, QuorumError
from imperfed.core.exchange import Exchange, Train, Updates, WeightedGradient
from imperfed.core.mechanism import LARGEST_WEIGHT, SumMechanism, Summed
from imperfed.engine.backends.base import Backend, Reply
from imperfed.engine.failures import Failure, NotFinite, Unreadable, named_failures
from imperfed.engine.population import Population, capped
from imperfed.engine.private_run import mean_of
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.engine.state import nbytes
from imperfed.engine.validate import check_alike


@dataclass(frozen=True)
class RoundExchanges:
    """Asks the sites on duty, and notes in the report of the round what they sent and which of them failed."""

    population: Population
    backend: Backend
    rounds: Rounds

    def sum_gradients(
        self, round: int, number: int, exchange: WeightedGradient, report: RoundReport, context: ServerContext
    ) -> Updates:
        """Return the weighted sum of the gradients of the sites on duty."""
        server, who = self.population.state.server, report.who
        n = self._counts(who)
        g, losses = self.backend.sum_gradients(round, number, who, exchange.weights(n))
        report.losses = dict(zip(who, losses.tolist(), strict=True))
        whole = server["w"].numel() + server["buffers"].numel()
        down, up = exchange.traffic(server, context) if exchange.traffic else (whole, whole)
        report.down += len(who) * down * g.element_size()
        report.up += len(who) * up * g.element_size()
        report.sent |= {"g": (up,)}
        return Updates(who, n, {"g": g.unsqueeze(0)})

    def ask(self, round: int, number: int, exchange: Exchange, report: RoundReport) -> Updates:
        """Ask the sites on duty, handle failures, and stack the answers."""
        asked = tuple(k for k in report.who if k not in report.failures)
        replies: dict[int, Reply] = {}
        failures = self._ask(round, number, asked, replies)
        for _ in range(self.rounds.retries if self.rounds.on_failure == "retry" else 0):
            failures = self._ask(round, number, tuple(failures), replies) if failures else failures
        failures |= check_alike({k: reply.up for k, reply in replies.items()})
        who = tuple(k for k in asked if k not in failures)
        self._refuse_too_few(round, failures, len(report.who), len(who))
        report.failures |= failures
        updates = Updates(who, self._counts(who), self.backend.together(who, replies))
        privacy = self.population.spec.privacy
        if isinstance(exchange, Train) and privacy is None:  # with privacy no site sends its loss
            report.losses = {k: replies[k].loss for k in who}
        report.down += sum(nbytes(self.population.down(k, exchange)) for k in asked)
        if privacy is None or not privacy.sums:
            report.up += sum(nbytes(replies[k].up) for k in who)
            report.sent |= {name: tuple(t.shape) for name, t in replies[who[0]].up.items() if t.numel()}
        return updates

    def summed(
        self, round: int, number: int, exchange: Exchange, updates: Updates, report: RoundReport
    ) -> Updates | None:
        """Return the answers as the server gets them: one mean in their place where only sums leave the sites."""
        mechanism = self.population.spec.privacy
        if not isinstance(mechanism, SumMechanism):
            return updates
        counts = capped(updates.n.tolist(), LARGEST_WEIGHT)
        summed = Summed(updates.who, tuple(n / sum(counts) for n in counts))
        if why := summed.objection():
            report.notes.append(f"the model stays as it was, instead of {why}")
            return None
        shares = self.backend.shares(round, number, summed, updates)
        sent = self.population.down(updates.who[0], exchange)
        report.failures |= {k: share for k, share in shares.items() if isinstance(share, Failure)}
        report.up += nbytes({str(k): share for k, share in shares.items() if isinstance(share, Tensor)})
        report.sent |= {"w": tuple(sent["w"].shape)}
        mean, why = mean_of(mechanism, sent, shares)
        if mean is None:
            names = ", ".join(self.population.federation.sites[k] for k in updates.who)
            report.notes.append(f"the model stays as it was: {why} of {names}")
            return None
        return Updates(updates.who[:1], updates.n.sum()[None], mean)

    def _counts(self, who: tuple[int, ...]) -> Tensor:
        counts, device = self.population.counts, self.population.runtime.net.row.device
        return torch.tensor([counts[k] for k in who], device=device)

    def _ask(self, round: int, number: int, sites: tuple[int, ...], replies: dict[int, Reply]) -> dict[int, Failure]:
        """Ask sites, add their answers to `replies`, and return those that failed."""
        failures: dict[int, Failure] = {}
        self.population.state.make_room(sites)
        for k, reply in self.backend.ask(round, number, sites).items():
            if isinstance(reply, Unreadable):
                raise DataError(reply.reason)
            if isinstance(reply, Failure):
                failures[k] = reply
            else:
                replies[k] = reply
        return failures

    def _refuse_too_few(self, round: int, failures: Mapping[int, Failure], asked: int, answered: int) -> None:
        reasons = named_failures(failures, self.population.federation.sites)
        if failures and self.rounds.on_failure == "stop":
            raise ImperfedError(f"round {round + 1}: {reasons}")
        if answered < self.rounds.quorum_of(asked):
            diverged = all(isinstance(failure, NotFinite) for failure in failures.values())
            cause = "the run has diverged: " if diverged else ""
            raise (DivergedError if diverged else QuorumError)(
                f"round {round + 1}: {cause}{answered} of {asked} sites answered, below the quorum "
                f"{self.rounds.quorum:g}. {reasons}"
            )
