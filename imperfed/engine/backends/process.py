"""The sites' work on this machine's cores, by processes of one thread each that share the run's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from imperfed.core.errors import DataError, ImperfedError
from imperfed.core.exchange import Train
from imperfed.core.labels.validity import Validity
from imperfed.engine.backends import worker
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.backends.stacked import STACKED, stackable
from imperfed.engine.backends.task_pool import Task, TaskPool, cores, make_pool, unforkable
from imperfed.engine.failures import Failure, Unreadable
from imperfed.engine.population import Population, Scores
from imperfed.engine.shared_memory import shared
from imperfed.engine.site import OPENING

ONE_PROCESS = (
    "sites are trained in one process: torch has already used this machine's GPU, after which no worker can be forked; "
    "for workers, hide the GPU (set CUDA_VISIBLE_DEVICES to nothing) or give --device cpu on the command line"
)


TASKS = 256
"""The most tasks into which an evaluation is cut."""


class ProcessBackend(SequentialBackend):
    """A backend of worker processes on this machine. Their number changes no result."""

    def __init__(self, population: Population, on_duty: int, workers: int) -> None:
        super().__init__(population)
        self.on_duty = on_duty
        self.wanted = min(workers or cores(), max(on_duty, len(population.tested)))
        trains = any(isinstance(e, Train) for e in population.spec.algorithm.exchanges(0))
        slots = min(on_duty, len(population.here)) if trains else 0
        self.uploads = {name: shared(population.state.servers[0][name].expand(slots, -1)) for name in ("w", "buffers")}
        self.stacks = stackable(population.spec, population.runtime.net.module)
        self.slots: dict[int, int] = {}
        """The row of the shared matrices into which each site of an exchange writes its answer."""
        self.slots_of = (OPENING, 0)
        """The round and number of that exchange."""
        self.started: TaskPool | None = None

    @property
    def pool(self) -> TaskPool:
        """The processes. They are forked when first needed and see what is in memory then."""
        if self.started is None:
            if self.wanted > 1 and unforkable():
                self.notes.append(ONE_PROCESS)
            self.population.state.make_room(())  # a process sees the files that are open when it is forked
            self.started = make_pool(worker.WorkerContext(self.population, self.uploads), self.wanted)
        return self.started

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange; large sites start first, so that no process waits for them at the end."""
        if round == OPENING:  # no process may be forked yet: the exchange may add to the server's memory
            return super().ask(round, number, sites)
        trains = isinstance(self.population.spec.exchange(round, number), Train)
        self._assign_slots((round, number), sites)
        sizes = self.population.sizes
        in_order = sorted(sites, key=lambda k: -sizes[k])
        shares = self._stacks(in_order) if trains and self.stacks else [(k,) for k in in_order]
        tasks: list[Task] = [(worker.respond, (round, number, s, [self.slots[k] for k in s])) for s in shares]
        replies: dict[int, Reply | Failure] = {}
        for task, result in self.pool.run(tasks):
            results = [result] * len(shares[task]) if isinstance(result, Failure) else result
            for k, answer in zip(shares[task], results, strict=True):
                replies[k] = answer if isinstance(answer, Failure) else self._reply(k, trains, *answer)
        return replies

    def _assign_slots(self, exchange: tuple[int, int], sites: Sequence[int]) -> None:
        """Give every site a row of the shared matrices; a site that is asked again keeps its row."""
        if self.slots_of != exchange:
            self.slots_of, self.slots = exchange, {}
        for k in sites:
            self.slots.setdefault(k, len(self.slots))

    def _reply(self, k: int, trains: bool, loss: float, further: dict[str, Any]) -> Reply:
        model = {name: matrix[self.slots[k]] for name, matrix in self.uploads.items()} if trains else {}
        return Reply(loss, model | {name: torch.from_numpy(array) for name, array in further.items()})

    def _stacks(self, sites: Sequence[int]) -> list[tuple[int, ...]]:
        """Split the sites into stacks. The split changes the rounding, so it must not depend on the machine."""
        stacks = 2 * -(-self.on_duty // (2 * STACKED))  # an even number, for two cores
        size, in_order = -(-self.on_duty // stacks), sorted(sites)
        return [tuple(in_order[a : a + size]) for a in range(0, len(sites), size)]

    def evaluate(self, ahead: bool = False, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of the sites' models and of the global one."""
        wanted = self.population.tested if sites is None else sites
        *parts, common = self._all([*_in_parts(worker.evaluate, wanted), (worker.evaluate_global, ())])
        return dict(zip(wanted, chain(*parts), strict=True)), common

    def validate(self, sites: Sequence[int] | None = None) -> dict[int, Validity]:
        """Return how far the sites' models agree with the rows that they hold out."""
        wanted = self.population.here if sites is None else sites
        return dict(zip(wanted, chain(*self._all(_in_parts(worker.validate, wanted))), strict=True))

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of every training row, as probabilities."""
        parts = list(chain(*self._all(_in_parts(worker.infer_labels, self.population.here))))
        return None if parts[0] is None else torch.cat([torch.from_numpy(part) for part in parts])

    def _all(self, tasks: list[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        for number, result in self.pool.run(tasks):
            if isinstance(result, Unreadable):
                raise DataError(result.reason)
            if isinstance(result, Failure):
                raise ImperfedError(f"evaluation failed: {result.reason}")
            results[number] = result
        return results

    def close(self) -> None:
        """Shut the processes down."""
        if self.started is not None:
            self.started.close()


def _in_parts(function: Callable[..., Any], sites: Sequence[int]) -> list[Task]:
    """Return tasks for these sites, each for so many of them that the pipes take little of the time."""
    size = -(-len(sites) // TASKS) or 1
    return [(function, (sites[start : start + size],)) for start in range(0, len(sites), size)]
