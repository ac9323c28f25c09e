"""The server's local steps on rows of its own, captured like those of a site."""

from __future__ import annotations

from dataclasses import replace

from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult
from imperfed.engine.backends.cuda.batch_schedule import Assignment
from imperfed.engine.backends.cuda.capture import Capturer
from imperfed.engine.backends.cuda.program import CapturedProgram, capture
from imperfed.engine.local_training import Local, Plan
from imperfed.engine.population import Population
from imperfed.engine.site import SiteRuntime
from imperfed.engine.state import State


class ServerSteps:
    """Trains on the server's rows as on those of a population of one site, whose memory is empty."""

    def __init__(self, population: Population, local: Local, capturer: Capturer, compiled: bool) -> None:
        self.whole, self.capturer, self.compiled = population, capturer, compiled
        fed, runtime, objective = population.federation, population.runtime, population.spec.objective
        assert fed.trusted is not None
        x, labels = fed.trusted.x, fed.trusted.labels.as_kind(objective.labels)
        alone = replace(
            fed,
            x=x,
            labels=labels,
            starts=(0, len(x)),
            sites=("server",),
            ids=(),
            at=None,
            groups=(),
            together=None,
            validation=None,
        )
        rows = {name: t.to(x.device) for name, t in objective.init_rows(labels).items()}
        state = State(0, [{}], population.state.personal[:1], {}, rows)
        spec = replace(runtime.spec, local=local)
        self.population = Population(SiteRuntime(spec, runtime.net), alone, state, population.evaluator)
        self.program: CapturedProgram | None = None
        self.not_captured: str | None = None
        """Why these steps are not captured; None as long as they are."""
        self.notes: list[str] = []

    def new_notes(self) -> list[str]:
        """Return sentences for the log that were not returned before."""
        notes, self.notes = self.notes, []
        return notes

    def train(self, plan: Plan, down: Tree, lr: float) -> LocalResult:
        """Make the steps of a plan from what the server hands over, or raise `NotCapturable`."""
        work = [Assignment.of(plan, len(self.population.federation.x), 0)]
        if self.program is None or self.program.down.keys() != down.keys():
            self.program = capture(self.population, work, [down], self.capturer, self.compiled)
            self.notes.append("the server's local steps are one captured graph")
        self.population.state.personal = self.whole.state.personal[:1]  # site 0's own part, as it is now
        self.program.train((0,), self.program.table.stage(work), [down], lr)
        return self.program.results(work, lr)[0]
