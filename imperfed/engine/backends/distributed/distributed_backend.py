"""The engine's backend at rank 0 of several: it deals the sites out and lets every rank train its own.

Whatever decides about a run happens at rank 0: the engine, the server's merge, the run's folder. The other ranks do
what they are told (`follower.py`). What travels: the server's memory to the ranks, where it has changed; weighted sums
of answers back. Single answers travel only where a merge or a defence looks at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import ImperfedError, UsageError
from imperfed.core.labels.validity import Validity
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.distributed.dealing import deal
from imperfed.engine.backends.distributed.follower import Begin, Call, Drop, RankDevice, Sum, Sync, Trouble
from imperfed.engine.backends.distributed.group import RankGroup, RankLostError
from imperfed.engine.backends.distributed.held import HeldSites, memory_of, remember
from imperfed.engine.backends.distributed.rank_answers import RankAnswers
from imperfed.engine.backends.distributed.site_holder import Answered, SiteHolder
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population, Scores, Share
from imperfed.engine.site import OPENING
from imperfed.engine.state import State, nbytes

MB = 1e6
SMALL = 1 << 18
"""The most bytes of the server's memory that are sent with the next command, to one rank after the other.

More are broadcast, which to a process that waits is a second interruption.
"""
NUMBERS = count()
"""Numbers for backends: a process may have several at the same time."""


class DistributedBackend(SequentialBackend):
    """A backend of several ranks. Before round 0 and while the data are prepared, everything is at rank 0."""

    opens_on_device = False  # the ranks are sent their rows from host memory
    can_break = True

    def __init__(self, population: Population, on_duty: int, workers: int, group: RankGroup, place: RankDevice) -> None:
        super().__init__(population)
        self.on_duty, self.workers, self.group, self.place = on_duty, workers, group, place
        self.number = next(NUMBERS)
        self.shares_of: list[Share] = []
        """What each rank holds; empty as long as everything is at rank 0."""
        self.sent: list[Tree] = []
        """The server's memory as the other ranks know it."""
        self.remembered = False
        """Whether the ranks know what their sites remember."""
        self.gathered = False
        """Whether the run's state says what the sites remember now."""
        self.traffic: Counter[str] = Counter()
        """Bytes since the run began, by what they were."""
        self.gathers: set[str] = set()
        """The names of what was gathered."""

    # -- dealing out ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deal the sites out, send each rank its rows, and keep those of rank 0 alone."""
        population = self.population
        if population.state.disk is not None:
            raise UsageError(
                "what the sites remember lies on disk (rounds.site_memory), where other ranks cannot reach it; set "
                "rounds.site_memory so high that it fits in memory, or use one process"
            )
        dealt, longer = deal(population, self.on_duty, self.group.size)
        self.shares_of = [self._share(sites) for sites in dealt]
        names = population.federation.sites
        self.group.names = [[names[k] for k in sites] for sites in dealt]
        for rank, share in enumerate(self.shares_of[1:], 1):
            part = HeldSites.cut(population, share, common=False)
            self.group.tell(Begin(self.number, part, self.on_duty, self.workers, self.place), rank)
            self.group.flush()
        self.part = HeldSites.cut(population, self.shares_of[0], common=True)
        self._hear_all()
        population.federation = population.federation.without_inputs()
        sites = " + ".join(str(len(sites)) for sites in dealt)
        self.notes.append(f"{self.group.size} ranks hold {sites} sites")
        if longer > 1.005:
            self.notes.append(f"rounds take about {longer - 1:.0%} longer than if all ranks had equally much to do")

    def _share(self, sites: tuple[int, ...]) -> Share:
        evaluated = range(self.population.evaluator.sites)
        if self.population.spec.algorithm.pools_data:  # one site trains, and its model is measured for all
            return Share(sites, tuple(evaluated) if sites else ())
        return Share(sites, tuple(k for k in sites if k in evaluated))

    @cached_property
    def holder(self) -> SiteHolder:
        """What answers for the sites of rank 0 itself, which share the memory of the run."""
        state, part = self.population.state, self.part
        own = State(0, state.servers, state.personal, state.memory, part.rows)
        runtime, most = self.population.runtime, self.population.max_share
        held = Population(runtime, part.federation, own, part.evaluator, most, part.share)
        if (device := runtime.net.row.device).type != "cpu":
            held.move_to(device)
        return SiteHolder(held, self.place.make_backend(held, self.on_duty, self.workers))

    # -- talking to the ranks ------------------------------------------------------------------------------------------

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        """Let every rank do the same; return what each has to say, rank 0 first."""
        self._inform()
        self.group.tell(Call(self.number, method, arguments))
        self.group.flush()
        error, results = None, []
        try:
            results.append(getattr(self.holder, method)(*arguments))
        except Exception as own:  # told when the other ranks are done, so that all wait for the next command
            error = own
        return results + self._hear_all(error)

    def _hear_all(self, error: Exception | None = None) -> list[Any]:
        """Return what each of the other ranks says; then raise the error of rank 0, if there is one, or of another."""
        told = []
        for rank in range(1, self.group.size):
            told.append(self.group.hear(rank))
            if isinstance(told[-1], Trouble):
                error = error or ImperfedError(f"rank {rank}: {told[-1].reason}")
        if error is not None:
            raise error
        return told

    def _inform(self) -> None:
        """Let the ranks know what has changed in the server's memory, and at first what their sites remember."""
        if not self.remembered:
            self.scatter()
        servers = self.population.state.servers
        known = self.sent or [{} for _ in servers]
        changed = [
            (g, name)
            for g, server in enumerate(servers)
            for name, t in server.items()
            if name not in known[g] or not torch.equal(known[g][name], t)
        ]
        if not changed:
            return
        size = nbytes({f"{g} {name}": servers[g][name] for g, name in changed})
        small = size <= SMALL
        self.group.tell(Sync(self.number, changed, [servers[g][name] for g, name in changed] if small else []))
        for g, name in changed:
            if not small:
                self.group.spread(servers[g][name])
            known[g][name] = servers[g][name].clone()
        self.sent = known
        self._count("server's memory", size)

    def _count(self, what: str, size: int) -> None:
        """Count what went between rank 0 and each other rank."""
        self.traffic[what] += size * (self.group.size - 1)

    # -- what the engine calls -----------------------------------------------------------------------------------------

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange, as far as the engine needs them: their shapes, and who has failed."""
        if round == OPENING:
            return super().ask(round, number, sites)
        replies: dict[int, Reply | Failure] = {}
        for results in self._call("ask", round, number, tuple(sites)):
            replies |= {k: one.reply() if isinstance(one, Answered) else one for k, one in results.items()}
        self.gathered = False
        self._pass_on_notes()
        return {k: replies[k] for k in sites}

    def _pass_on_notes(self) -> None:
        """Take over what the backend of rank 0 has to say; those of other ranks say the same."""
        notes = self.holder.backend.notes
        self.notes += notes
        notes.clear()

    def together(self, who: Sequence[int], replies: Mapping[int, Reply]) -> RankAnswers:
        """Return the answers, which stay at the ranks."""
        forms = {name: (t.shape, t.dtype) for name, t in replies[who[0]].up.items()}
        return RankAnswers(tuple(who), forms, self._gather, self._add_up)

    def _gather(self, name: str, sites: tuple[int, ...]) -> Tensor:
        """Return the answers of sites under a name, one row per site."""
        by_rank = self._call("rows", name, sites)
        far = sum(nbytes({str(k): t for k, t in rows.items()}) for rows in by_rank[1:])
        self.traffic["single answers"] += far
        if name not in self.gathers:
            self.gathers.add(name)
            self.notes.append(f"{name!r} of {len(sites)} sites is looked at one by one: {far / MB:.3g} MB to rank 0")
        rows = {k: t for rows in by_rank for k, t in rows.items()}
        device = self.population.runtime.net.row.device
        return torch.stack([rows[k].to(device) for k in sites])

    def _add_up(self, names: tuple[str, ...], sites: tuple[int, ...], weights: Tensor, size: int) -> Tensor:
        """Return the weighted sums over sites: a part per rank, added up on the way."""
        arguments = (names, sites, weights, size)
        self.group.tell(Sum(self.number, arguments))
        self.group.flush()
        total = self.holder.partial_sum(*arguments)
        self.group.add_up(total)
        self._count("sums", total.numel() * total.element_size())
        return total

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the gradients at all ranks, and every site's mean loss."""
        by_rank = self._call("sum_gradients", round, number, tuple(sites), weights)
        total = torch.stack([g.double().to(weights.device) for g, _ in by_rank]).sum(0).to(by_rank[0][0].dtype)
        self._count("sums", nbytes({"g": total}))
        pairs = zip((share.among(sites) for share in self.shares_of), by_rank, strict=True)
        losses = {k: loss for mine, (_, told) in pairs for k, loss in zip(mine, told.tolist(), strict=True)}
        return total, torch.tensor([losses[k] for k in sites])

    def evaluate(self, ahead: bool = False, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of the sites' models, each measured at its rank, and of the global one."""
        wanted = range(self.population.evaluator.sites) if sites is None else sites
        results = self._call("evaluate", list(wanted))
        scores = {k: one for sites, _ in results for k, one in sites.items()}
        return dict(sorted(scores.items())), results[0][1]

    def validate(self, sites: Sequence[int] | None = None) -> dict[int, Validity]:
        """Return how far the sites' models agree with the rows that they hold out."""
        wanted = range(len(self.population.sizes)) if sites is None else sites
        told = self._call("validate", list(wanted))
        return dict(sorted((k, one) for results in told for k, one in results.items()))

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of every training row, as probabilities."""
        starts, labels = self.population.federation.starts, dict[int, Tensor]()
        for share, part in zip(self.shares_of, self._call("inferred_labels"), strict=True):
            if part is not None:
                sizes = [starts[k + 1] - starts[k] for k in share.sites]
                labels |= dict(zip(share.sites, part.split(sizes), strict=True))
        return torch.cat([labels[k] for k in sorted(labels)]) if labels else None

    def gather(self) -> None:
        """Bring what the sites remember into the run's state."""
        if self.gathered or not self.remembered:  # nothing has been trained since
            return
        self.gathered = True
        for share, tree in zip(self.shares_of, self._call("memory"), strict=True):
            remember(self.population, share, tree)
            if share is not self.shares_of[0]:
                self.traffic["sites' memory"] += nbytes(tree)

    def scatter(self) -> None:
        """Let the sites remember what the run's state says."""
        self.remembered = self.gathered = True
        for rank, share in enumerate(self.shares_of):
            tree = memory_of(self.population, share)
            if rank == 0:
                self.holder.remember(tree)
            else:
                self.group.tell(Call(self.number, "remember", (tree,)), rank)
                self.group.flush()
        self._hear_all()

    def close(self) -> None:
        """Let every rank forget its sites."""
        if self.shares_of:
            if "holder" in vars(self):
                self.holder.close()
            self.shares_of = []
            with suppress(RankLostError):  # which has been told
                self.group.tell(Drop(self.number))
                self.group.flush()
