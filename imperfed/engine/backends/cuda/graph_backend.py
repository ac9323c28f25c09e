"""The local steps of all sites on duty as one captured CUDA graph.

A step of a small network takes the GPU less time than it takes the host to ask for it. Here the host asks once a round:
all steps of all sites are recorded (`program.py`), and the record is replayed in every round. An exchange that
is no local training, and a step that cannot be recorded, go through the loop; the log says so and why.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.cuda.batch_schedule import Assignment, Staged
from imperfed.engine.backends.cuda.capture import Capturer
from imperfed.engine.backends.cuda.program import CapturedProgram, NotCapturable, capture
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.backends.task_pool import Failure
from imperfed.engine.local_training import plan
from imperfed.engine.seeds import generator, on_duty_in
from imperfed.engine.site import SiteRuntime, SiteUpdate, site_context

Planned = tuple[list[Assignment], Staged | None]
"""The work of the sites on duty, and the same on the device where a program for it is there."""


class CudaGraphBackend(SequentialBackend):
    """Every site's answer from a program that trains them all at once."""

    def __init__(self, runtime: SiteRuntime, on_duty: int, recorder: Capturer, compiled: bool = False) -> None:
        super().__init__(runtime)
        self.on_duty, self.recorder, self.compiled = on_duty, recorder, compiled
        self.programs: dict[int, CapturedProgram] = {}
        """By the number of sites in it."""
        self.planned: dict[tuple[int, tuple[int, ...]], Planned] = {}
        self.why: str | None = None
        """Why local steps are not recorded, where they are not."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Local training in one program, anything else one by one."""
        if self.why is None and self.runtime.spec.algorithm.exchanges(round)[number].trains:
            try:
                return self._train(round, tuple(sites))
            except NotCapturable as reason:
                self.why, self.programs, self.planned = str(reason), {}, {}
                self.notes.append(f"local steps run one by one, not as one captured graph: {reason}")
        return super().ask(round, number, sites)

    def _train(self, round: int, sites: tuple[int, ...]) -> dict[int, Reply | Failure]:
        given, staged = self.planned.get((round, sites)) or (self._plan(round, sites), None)
        downs = [self._received(k, one) for k, one in zip(sites, given, strict=True)]
        program = self.programs.get(len(sites)) or self._record(given, downs)
        program.train(sites, staged or program.table.stage(given), downs)
        self._plan_ahead(round + 1, program)  # while the GPU is at work
        return self._accept(program, sites, program.ends(given))

    def _record(self, given: list[Assignment], downs: list[Tree]) -> CapturedProgram:
        try:
            program = capture(self.runtime, given, downs, self.recorder, self.compiled)
        except NotCapturable as reason:
            if not self.compiled:
                raise
            self.notes.append(f"local steps are not compiled: {reason}")
            self.compiled = False
            return self._record(given, downs)
        if self.compiled and not program.compiled:
            self.notes.append("local steps are not compiled: the method makes a step of its own")
        self.programs[len(given)] = program
        self.notes.append(f"the local steps of {len(given)} sites are one captured graph")
        return program

    def _plan(self, round: int, sites: tuple[int, ...]) -> list[Assignment]:
        spec, starts, given = self.runtime.spec, self.runtime.spec.federation.starts, []
        for k in sites:
            n = starts[k + 1] - starts[k]
            p = plan(spec.algorithm, spec.local, n, generator(spec.seed, round, k, "batches"))
            given.append(Assignment.of(p, n, starts[k]))
        return given

    def _plan_ahead(self, round: int, program: CapturedProgram) -> None:
        spec = self.runtime.spec
        who = on_duty_in(spec.seed, round, len(spec.federation.sites), self.on_duty)
        given = self._plan(round, who)
        staged = program.table.stage(given) if self.programs.get(len(who)) is program else None
        self.planned = {(round, who): (given, staged)}

    def _received(self, site: int, given: Assignment) -> Tree:
        """What a site starts from."""
        algorithm = self.runtime.spec.algorithm
        if type(algorithm).prepare is Algorithm.prepare:
            return self.runtime.down(site)
        return algorithm.prepare(site_context(self.runtime, site, given.plan))

    def _accept(
        self, program: CapturedProgram, sites: tuple[int, ...], done: list[LocalResult]
    ) -> dict[int, Reply | Failure]:
        """Check all answers with one look at the device; what stays at a site is kept if its answer is sound."""
        answers = self._answers(program, sites, done)
        sound = torch.stack([program.sound(sites), *self._sound_beside(answers)]).all(0)
        told = torch.stack([program.losses, sound.to(program.losses.dtype)], 1).tolist()
        state, replies = self.runtime.state, dict[int, Reply | Failure]()
        stays = bool(state.personal.shape[1] or state.memory or state.rows)
        for k, answer, (loss, whole) in zip(sites, answers, told, strict=True):
            fault = answer.misshapen(state) or (None if whole else answer.not_finite())
            replies[k] = Failure(f"its answer was refused: {fault}") if fault else Reply(loss, answer.up)
            if stays and not fault:
                answer.keep(self.runtime, k)
        return replies

    def _answers(self, program: CapturedProgram, sites: tuple[int, ...], done: list[LocalResult]) -> list[SiteUpdate]:
        """As `site.answer_of`, but of views: the program's matrix stays as it is until the next round."""
        layout, answers = self.runtime.spec.layout, []
        w, buffers, personal = program.W[:, : layout.shared], layout.buffers(program.W), layout.personal(program.W)
        parts = zip(sites, done, w.unbind(), buffers.unbind(), personal.unbind(), strict=True)
        for k, one, w_k, buffers_k, personal_k in parts:
            extra, memory = self.runtime.spec.algorithm.reply(one)
            up = {"w": w_k, "buffers": buffers_k} | extra
            answers.append(SiteUpdate(up, 0.0, personal_k, memory, program.rows_of(k)))
        return answers

    def _sound_beside(self, answers: Sequence[SiteUpdate]) -> list[Tensor]:
        """Whether what sites answer and remember beside their weights is finite, name by name."""
        trees = [{f"up {n}": t for n, t in a.up.items() if n not in ("w", "buffers")} | a.memory for a in answers]
        return [torch.stack([torch.isfinite(one[name]).all() for one in trees]) for name in trees[0]]
