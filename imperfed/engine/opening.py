"""The exchanges before round 0, in which every site must answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import QuorumError
from imperfed.core.exchange import Query, Updates
from imperfed.core.threads import one_thread
from imperfed.engine.backends.base import Backend, Reply
from imperfed.engine.failures import Failure, named_failures
from imperfed.engine.population import Population
from imperfed.engine.schedule import RoundReport
from imperfed.engine.server import Server
from imperfed.engine.shared_memory import lasting
from imperfed.engine.site import OPENING
from imperfed.engine.state import nbytes
from imperfed.engine.validate import check_parts


def opened(server: Server, backend: Backend) -> RoundReport:
    """Ask all sites what the algorithm and the defence want to know before training, and remember the answers."""
    population, report = server.population, RoundReport(OPENING, (), {}, {})
    state, contexts, sites = population.state, server.contexts(OPENING), range(len(population.sizes))
    n = torch.tensor(population.counts, device=population.runtime.net.row.device)
    for number, exchange in enumerate(population.spec.opening()):
        with one_thread():
            parts = answers_of_all(backend.ask(OPENING, number, sites), population)
            refuse_unlike(exchange, parts, population, any_length=True)
            updates = Updates(tuple(sites), n, {}, parts)
            for g, context in enumerate(contexts):
                if own := server.of_group(updates, g):
                    combined = aggregated(exchange, dict(state.servers[g]), own, context, population)
                    state.servers[g] = {name: lasting(t, n.device) for name, t in combined.items()}
        report.down += sum(nbytes(population.down(k, exchange)) for k in sites)
        report.up += sum(map(nbytes, parts))
        report.sent |= {name: tuple(t.shape) for part in parts for name, t in part.items()}
    report.notes += [*lowered(population), *(note for context in contexts for note in context.notes)]
    return report


def answers_of_all(replies: Mapping[int, Reply | Failure], population: Population) -> tuple[Tree, ...]:
    """Return the answers of all sites, or raise `QuorumError` with the names of the sites that failed."""
    refuse_failed({k: reply for k, reply in replies.items() if isinstance(reply, Failure)}, population)
    return tuple(reply.up for reply in replies.values() if isinstance(reply, Reply))


def aggregated(query: Query, server: Tree, updates: Updates, context: ServerContext, population: Population) -> Tree:
    """Return the server's memory after a query, in whose answers sites may differ in length or may not."""
    try:
        return query.aggregate(server, updates, context)
    except RuntimeError:  # of torch; only the method itself knows which lengths must be equal
        refuse_unlike(query, updates.parts, population, any_length=False, who=updates.who)
        raise


def refuse_unlike(
    query: Query, parts: Sequence[Tree], population: Population, any_length: bool, who: Sequence[int] | None = None
) -> None:
    """Raise `QuorumError` with the names of the sites whose answers do not go with the others'."""
    failed = check_parts(query, [population.state.servers[0]] * len(parts), parts, any_length)
    refuse_failed({k if who is None else who[k]: failure for k, failure in failed.items()}, population)


def refuse_failed(failed: Mapping[int, Failure], population: Population) -> None:
    """Raise `QuorumError` with the names of the sites that failed, if any did."""
    if failed:
        reasons = named_failures(failed, population.federation.sites)
        raise QuorumError(f"before round 1 every site must answer. {reasons}")


def lowered(population: Population) -> list[str]:
    """Return a sentence for every site that counts with fewer rows than it has."""
    share, federation = population.max_share, population.federation
    return [
        f"{name} has {n} of {federation.starts[-1]} rows and counts as {count:.0f} (rounds.max_share = {share:g})"
        for name, n, count in zip(federation.sites, population.sizes, population.counts, strict=True)
        if count < n
    ]
