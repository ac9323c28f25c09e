"""A label repair before training: its exchanges with all sites, here or elsewhere, and its result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch

from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision, Repair, RepairResult
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import QuorumError
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact, Labels
from imperfed.core.threads import one_thread
from imperfed.engine.failures import Failure
from imperfed.engine.state import nbytes
from imperfed.engine.validate import REFUSED, check_parts

CPU = torch.device("cpu")
Ask = Callable[[int, Sequence[Tree]], tuple[Tree, ...]]
"""From the number of an exchange and what each site receives in it to the answers of all sites."""
Merge = Callable[[Query, Tree, Updates, ServerView], Tree]
"""Carries out the server's step of an exchange; returns what the server remembers then."""
AskAll = Callable[[Callable[[SiteView], Tree], Iterable[SiteView]], Iterable[Tree]]
"""Applies a function to all sites; the answers come in the same order."""


@dataclass
class Transcript:
    """The server's memory after a repair, and a record of what server and sites sent each other."""

    server: Tree
    down: int = 0
    up: int = 0
    """Bytes of the tensors alone, without what a transport adds."""
    sent: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name and largest shape of everything that left a site."""

    def record(self, downs: Sequence[Tree], answers: Sequence[Tree]) -> None:
        """Record one exchange."""
        self.down += sum(map(nbytes, downs))
        self.up += sum(map(nbytes, answers))
        for answer in answers:
            for name, t in answer.items():
                self.sent[name] = max(self.sent.get(name, ()), tuple(t.shape), key=math.prod)


def aggregated(exchange: Query, server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Carry out the server's step of an exchange."""
    return exchange.aggregate(server, updates, context)


def converse(
    exchanges: Sequence[Query],
    server: Tree,
    context: ServerView,
    sizes: Sequence[int],
    ask: Ask,
    merge: Merge = aggregated,
) -> Transcript:
    """Carry out the server's side of exchanges in which every site answers, here or elsewhere."""
    who, n = tuple(range(len(sizes))), torch.tensor(sizes).float()
    transcript = Transcript(server)
    for number, exchange in enumerate(exchanges):
        downs = [exchange.send(transcript.server, k) for k in who]
        answers = ask(number, downs)
        failures = check_parts(exchange, downs, answers, exchange.ragged)
        if failures or (failures := doubted(exchange, transcript.server, answers, sizes)):
            raise missing({context.sites[k]: failure for k, failure in failures.items()}, len(sizes))
        transcript.record(downs, answers)
        transcript.server = merge(exchange, transcript.server, Updates(who, n, {}, answers), context)
    return transcript


def missing(failures: Mapping[str, Failure], sites: int) -> QuorumError:
    """Return the error of a repair that not all sites have answered, with the failures of the others by name."""
    reasons = "; ".join(f"{name}: {failure.reason}" for name, failure in failures.items())
    at_once = "; so many at once may be due to what they were sent, which was made of all sites' earlier answers"
    return QuorumError(
        f"a repair needs an answer from every site. {reasons}{at_once if 2 * len(failures) > sites > 2 else ''}"
    )


def doubted(exchange: Query, server: Tree, answers: Sequence[Tree], sizes: Sequence[int]) -> dict[int, Failure]:
    """Find the sites whose answers cannot be true, as far as the exchange can tell."""
    if exchange.doubt is None:
        return {}
    reasons = (exchange.doubt(server, answer, rows) for answer, rows in zip(answers, sizes, strict=True))
    return {k: Failure(f"{REFUSED}{reason}") for k, reason in enumerate(reasons) if reason}


def conduct(repair: Repair, federation: Federation, ask: Ask, merge: Merge = aggregated) -> Transcript:
    """Carry out the server's side of a whole repair."""
    repair.check(federation)
    context = ServerView(classes=federation.classes, sites=federation.sites, trusted=federation.trusted)
    exchanges, sizes = exchanges_of(repair, federation), federation.sizes()
    with one_thread() if repair.same_bits else nullcontext():
        return converse(exchanges, repair.init_server(context), context, sizes, ask, merge)


def exchanges_of(repair: Repair, federation: Federation) -> tuple[Query, ...]:
    """Return all exchanges of a repair."""
    return repair.conversation(federation.classes, federation.trusted is not None)


def ask_here(exchanges: Sequence[Query], sites: Sequence[SiteView], in_turn: AskAll = map) -> Ask:
    """Return a function that asks sites whose rows are in this process; `in_turn`: `map`, or that of a thread pool."""

    def ask(number: int, downs: Sequence[Tree]) -> tuple[Tree, ...]:
        receivers = (replace(site, down=down) for site, down in zip(sites, downs, strict=True))
        return tuple(in_turn(exchanges[number].respond, receivers))

    return ask


def views(federation: Federation) -> list[SiteView]:
    """Return each site's view of its own rows, with an empty memory."""
    cuts = enumerate(pairwise(federation.starts))
    return [SiteView(k, federation.inputs(a, b), federation.labels.between(a, b), {}, {}) for k, (a, b) in cuts]


def repair_labels(
    repair: Repair, federation: Federation, wanted: type[Labels] = Exact, device: torch.device = CPU
) -> tuple[Federation, RepairResult]:
    """Repair the labels of sites that are all in this process, computing on a device.

    `wanted`: the kind of labels that training asks for. The results are in host memory.
    """
    given, more = federation.labels, tuple[str, ...]()
    try:
        decisions, transcript = carried_out(repair, federation, device)
    except torch.cuda.OutOfMemoryError:
        decisions, transcript = carried_out(repair, federation, CPU)
        more = (f"repair {repair.name}: on the CPU, since the GPU has too little memory for it",)
    result = RepairResult(
        given.values,
        decisions,
        tuple(reason for decision in decisions for reason in repair.reasons(federation.classes, decision)),
        transcript.sent,
        transcript.down,
        transcript.up,
        (*more, *notes(repair, transcript, federation)),
        repair.verdict(transcript.server, federation.sites),
    )
    kind = repair.gives(wanted)
    values = torch.cat([decision.labels(kind, given.classes).values for decision in decisions])
    if kind is not type(given) or not torch.equal(values, given.values):
        federation = replace(federation, labels=kind(values, given.classes))
    return replace(federation, groups=repair.groups_of(transcript.server)), result


def carried_out(
    repair: Repair, federation: Federation, device: torch.device
) -> tuple[tuple[LabelDecision, ...], Transcript]:
    """Return what every site decides and the transcript, in host memory, after a repair that computes on a device."""
    exchanges = exchanges_of(repair, federation)
    if device.type == "cpu":
        sites = views(federation)
        # By how many threads a sum is added up is not said once for the program: every thread has a number of its own.
        with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            transcript = conduct(repair, federation, ask_here(exchanges, sites, pool.map if repair.same_bits else map))
    else:
        there = federation.to(device)
        sites = views(there)
        with device:  # what a repair makes of numbers of its own is made there
            transcript = conduct(repair, there, ask_here(exchanges, sites))
    transcript.server = in_host_memory(transcript.server)
    return tuple(LabelDecision.of(in_host_memory(site.memory)) for site in sites), transcript


def in_host_memory(tree: Tree) -> Tree:
    """Return the same tensors in host memory."""
    return {name: t.cpu() for name, t in tree.items()}


def notes(repair: Repair, transcript: Transcript, federation: Federation) -> tuple[str, ...]:
    """Return sentences for the log about what was done."""
    changed = int(transcript.server["changed"].sum())
    said = [f"{changed} of {federation.starts[-1]} labels corrected"]
    if verdict := repair.verdict(transcript.server, federation.sites):
        said.append(verdict.words)
    if groups := repair.groups_of(transcript.server):
        said.append(f"groups of the sites {list(groups)}")
    return tuple(f"repair {repair.name}: {sentence}" for sentence in said)
