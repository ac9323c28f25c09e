"""The local steps of all sites on duty as one captured CUDA graph.

A step of a small network takes the GPU less time than the host needs to launch it. Here the host launches once per
round: all steps of all sites are captured (`program.py`), and the graph is replayed in every round. An exchange other
than local training, and a step that cannot be captured, run site by site; the log says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult
from imperfed.core.exchange import Exchange, Train
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.cuda.batch_schedule import Assignment, Staged
from imperfed.engine.backends.cuda.capturable import NotCapturable
from imperfed.engine.backends.cuda.capture import Capturer
from imperfed.engine.backends.cuda.program import CapturedProgram, capture
from imperfed.engine.backends.cuda.server_steps import ServerSteps
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.failures import Failure
from imperfed.engine.local_training import Local, Plan, plan
from imperfed.engine.population import Population
from imperfed.engine.seeds import generator, on_duty_in
from imperfed.engine.site import OPENING, SiteUpdate

Planned = tuple[list[Assignment], Staged | None]
"""The work of the sites on duty, and the same on the device where a program for it exists."""


class CudaGraphBackend(SequentialBackend):
    """A backend that trains all sites on duty in one captured program."""

    def __init__(self, population: Population, on_duty: int, capturer: Capturer, compiled: bool = False) -> None:
        super().__init__(population)
        self.on_duty, self.capturer, self.compiled = on_duty, capturer, compiled
        self.programs: dict[int, CapturedProgram] = {}
        """The programs, by their number of sites."""
        self.planned: dict[tuple[int, tuple[int, ...]], Planned] = {}
        self.not_captured: str | None = None
        """Why local steps are not captured; None as long as they are."""
        self.server_steps: ServerSteps | None = None

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange: local training in one program, anything else site by site."""
        exchange = self.population.spec.exchange(round, number)
        if round != OPENING and self.not_captured is None and isinstance(exchange, Train):
            try:
                return self._train(round, exchange, tuple(sites))
            except NotCapturable as reason:
                self.not_captured, self.programs, self.planned = str(reason), {}, {}
                self.notes.append(f"local steps run one by one, not as one captured graph: {reason}")
        return super().ask(round, number, sites)

    def _train(self, round: int, exchange: Exchange, sites: tuple[int, ...]) -> dict[int, Reply | Failure]:
        work, staged = self.planned.get((round, sites)) or (self._plan(round, sites), None)
        downs = [self._start(k, exchange, one) for k, one in zip(sites, work, strict=True)]
        program = self.programs.get(len(sites)) or self._capture(work, downs)
        lr = self.population.spec.local_in(round).lr
        program.train(sites, staged or program.table.stage(work), downs, lr)
        self._plan_ahead(round + 1, program)  # while the GPU is busy
        return self._accept_all(program, round, exchange, sites, program.results(work, lr))

    def train_at_server(self, local: Local, plan: Plan, down: Tree, lr: float) -> LocalResult | None:
        """Make the server's steps in a program of its own; None where they cannot be captured."""
        if self.server_steps is None:
            self.server_steps = ServerSteps(self.population, local, self.capturer, self.compiled)
        if self.server_steps.not_captured is not None:
            return None
        try:
            done = self.server_steps.train(plan, down, lr)
            self.notes += self.server_steps.new_notes()
            return done
        except NotCapturable as reason:
            self.server_steps.not_captured = str(reason)
            self.notes.append(f"the server's local steps run one by one, not as one captured graph: {reason}")
            return None

    def _capture(self, work: list[Assignment], downs: list[Tree]) -> CapturedProgram:
        try:
            program = capture(self.population, work, downs, self.capturer, self.compiled)
        except NotCapturable as reason:
            if not self.compiled:
                raise
            self.notes.append(f"local steps are not compiled: {reason}")
            self.compiled = False
            return self._capture(work, downs)
        if self.compiled and not program.compiled:
            self.notes.append("local steps are not compiled: the method defines its own local step")
        self.programs[len(work)] = program
        self.notes.append(f"the local steps of {len(work)} sites are one captured graph")
        return program

    def _plan(self, round: int, sites: tuple[int, ...]) -> list[Assignment]:
        spec, starts, work = self.population.spec, self.population.federation.starts, []
        for k in sites:
            n = starts[k + 1] - starts[k]
            steps = plan(spec.algorithm, spec.objective, spec.local, n, generator(spec.seed, round, k, "batches"))
            work.append(Assignment.of(steps, n, starts[k]))
        return work

    def _plan_ahead(self, round: int, program: CapturedProgram) -> None:
        here = set(self.population.here)
        duty = on_duty_in(self.population.spec.seed, round, len(self.population.sizes), self.on_duty)
        who = tuple(k for k in duty if k in here)
        work = self._plan(round, who)
        staged = program.table.stage(work) if self.programs.get(len(who)) is program else None
        self.planned = {(round, who): (work, staged)}

    def _start(self, k: int, exchange: Exchange, work: Assignment) -> Tree:
        """Return what a site's local training starts from."""
        down = self.population.down(k, exchange)
        if "prepare" not in self.population.spec.algorithm.overridden:
            return down
        return self.population.runtime.start(self.population.site(k), down, work.plan)

    def _accept_all(
        self,
        program: CapturedProgram,
        round: int,
        exchange: Exchange,
        sites: tuple[int, ...],
        results: list[LocalResult],
    ) -> dict[int, Reply | Failure]:
        """Check all answers with one transfer from the device; commit what stays at a site if its answer is sound."""
        updates = self._updates(program, sites, results)
        if self.population.spec.privacy is not None:
            protected, down = self.population.runtime.protected, self.population.down
            updates = [protected(u, k, round, down(k, exchange)) for k, u in zip(sites, updates, strict=True)]
        sound = torch.stack([program.sound(sites), *self._sound_beside(updates)]).all(0)
        ends = torch.stack([program.losses, sound.to(program.losses.dtype)], 1).tolist()
        state, replies = self.population.state, dict[int, Reply | Failure]()
        memory = state.kept_at(0)[1]
        stays = bool(state.personal.shape[1] or memory or state.rows)
        for k, update, (loss, finite) in zip(sites, updates, ends, strict=True):
            failure = update.check_shapes(memory, exchange, state.servers[0])
            failure = failure or (None if finite else update.check_finite())
            replies[k] = failure or Reply(loss, update.up)
            if stays and not failure:
                self.population.keep(k, update)
        return replies

    def _updates(
        self, program: CapturedProgram, sites: tuple[int, ...], results: list[LocalResult]
    ) -> list[SiteUpdate]:
        """Return the same as `SiteRuntime.update`, as views: the program's matrix is unchanged until the next round."""
        layout, updates = self.population.spec.layout, []
        w, buffers, personal = program.W[:, : layout.shared], layout.buffers(program.W), layout.personal(program.W)
        parts = zip(sites, results, w.unbind(), buffers.unbind(), personal.unbind(), strict=True)
        for k, result, w_k, buffers_k, personal_k in parts:
            extra, memory = self.population.spec.algorithm.reply(result)
            up = {"w": w_k, "buffers": buffers_k} | extra
            updates.append(SiteUpdate(up, 0.0, personal_k, memory, program.rows_of(k)))
        return updates

    def _sound_beside(self, updates: Sequence[SiteUpdate]) -> list[Tensor]:
        """Return whether what each site sends and remembers besides its weights is finite, name by name."""
        trees = [{f"up {n}": t for n, t in u.up.items() if n not in ("w", "buffers")} | u.memory for u in updates]
        return [torch.stack([torch.isfinite(one[name]).all() for one in trees]) for name in trees[0]]
