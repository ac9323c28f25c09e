"""The sites' work done on this machine's cores, by processes of one thread each that share the run's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from imperfed.core.errors import ImperfedError
from imperfed.engine.backends import worker as post
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.backends.stacked import TOGETHER, stackable
from imperfed.engine.backends.task_pool import Failure, Task, TaskPool, cores, make_pool, unforkable
from imperfed.engine.site import Scores, SiteRuntime
from imperfed.engine.state import shared

ONE_PROCESS = (
    "sites are trained in one process: torch has begun to use this machine's GPU, after which no worker can be forked; "
    "for workers, hide the GPU (set CUDA_VISIBLE_DEVICES to nothing) or give --device cpu on the command line"
)


class ProcessBackend(SequentialBackend):
    """Every site's answer from a process of this machine. The number of processes changes no result."""

    def __init__(self, runtime: SiteRuntime, on_duty: int, workers: int) -> None:
        super().__init__(runtime)
        self.on_duty = on_duty
        self.wanted = min(workers or cores(), max(on_duty, runtime.spec.evaluator.sites))
        places = on_duty if any(e.trains for e in runtime.spec.algorithm.exchanges(0)) else 0
        self.uploads = {name: shared(runtime.state.servers[0][name].expand(places, -1)) for name in ("w", "buffers")}
        self.stacks = stackable(runtime.spec, runtime.net.module)
        self.slots: dict[int, int] = {}
        self.answering = (-1, -1)
        self.started: TaskPool | None = None

    @property
    def pool(self) -> TaskPool:
        """The processes. Hired when first needed: they see what is in memory then."""
        if self.started is None:
            if self.wanted > 1 and unforkable():
                self.notes.append(ONE_PROCESS)
            self.started = make_pool(post.WorkerContext(self.runtime, self.uploads), self.wanted)
        return self.started

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """The longest first, so that no process is left waiting for it at the end."""
        exchange = self.runtime.spec.algorithm.exchanges(round)[number]
        self._seat((round, number), sites)
        sizes = self.runtime.spec.federation.sizes()
        in_order = sorted(sites, key=lambda k: -sizes[k])
        shares = self._shares(in_order) if exchange.trains and self.stacks else [(k,) for k in in_order]
        tasks: list[Task] = [(post.respond, (round, number, s, [self.slots[k] for k in s])) for s in shares]
        replies: dict[int, Reply | Failure] = {}
        for task, result in self.pool.run(tasks):
            results = [result] * len(shares[task]) if isinstance(result, Failure) else result
            for k, one in zip(shares[task], results, strict=True):
                replies[k] = one if isinstance(one, Failure) else self._reply(k, exchange.trains, *one)
        return replies

    def _seat(self, answering: tuple[int, int], sites: Sequence[int]) -> None:
        """A row of the shared matrix for every site; one that is asked again keeps its own."""
        if self.answering != answering:
            self.answering, self.slots = answering, {}
        for k in sites:
            self.slots.setdefault(k, len(self.slots))

    def _reply(self, site: int, trains: bool, loss: float, further: dict[str, Any]) -> Reply:
        model = {name: matrix[self.slots[site]] for name, matrix in self.uploads.items()} if trains else {}
        return Reply(loss, model | {name: torch.from_numpy(array) for name, array in further.items()})

    def _shares(self, sites: Sequence[int]) -> list[tuple[int, ...]]:
        """Sites that are trained in one program. As the cut changes the rounding, nothing of the machine changes it."""
        stacks = 2 * -(-self.on_duty // (2 * TOGETHER))  # an even number, for two cores
        size, in_order = -(-self.on_duty // stacks), sorted(sites)
        return [tuple(in_order[a : a + size]) for a in range(0, len(sites), size)]

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site's model and of the global one."""
        tasks: list[Task] = [(post.evaluate, (k,)) for k in range(self.runtime.spec.evaluator.sites)]
        *sites, common = self._all([*tasks, (post.evaluate_common, ())])
        return dict(enumerate(sites)), common

    def inferred_labels(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row."""
        parts = self._all([(post.infer_labels, (k,)) for k in range(len(self.runtime.spec.federation.sites))])
        return None if parts[0] is None else torch.cat([torch.from_numpy(part) for part in parts])

    def _all(self, tasks: list[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        for number, result in self.pool.run(tasks):
            if isinstance(result, Failure):
                raise ImperfedError(f"evaluation failed: {result.reason}")
            results[number] = result
        return results

    def close(self) -> None:
        """Let the processes go."""
        if self.started is not None:
            self.started.close()
