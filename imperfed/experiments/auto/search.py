"""The whole search: trials by halving, models alone at each site, and the mixture of the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from imperfed.alone import AloneModel
from imperfed.core.errors import ImperfedError
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.task_pool import InlinePool, Task, TaskPool, cores, make_pool
from imperfed.engine.failures import Failure
from imperfed.evaluation.temperature import fit_temperature
from imperfed.experiments.auto import trials
from imperfed.experiments.auto.alone_search import AloneContext, OwnModel, choose_alone, left_out
from imperfed.experiments.auto.combinations import Candidate, candidates
from imperfed.experiments.auto.halving import halve
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.site_choice import WEIGHTS, choose, mixture_table
from imperfed.experiments.auto.trials import Progress, TrialRecord
from imperfed.experiments.auto.work import RUNGS, SearchPlan, plan
from imperfed.experiments.device import Hardware
from imperfed.experiments.experiment import Interrupted

TRAINING = 0.7
"""The share of a search, roughly, that trials take; models alone take the rest."""
EMERGENCY = 4.0
"""A search that takes so many times its budget is cut short, which is recorded: its choice is then not repeatable."""


@dataclass(frozen=True)
class SiteChoice:
    """What one site does: its own model, and the weight of the federated one beside it."""

    alone: AloneModel | None
    """None: sites fit no models alone here."""
    weight: float
    validity: float | None
    """The score of its own model on the rows that it holds out."""


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    plan: SearchPlan
    combinations: int
    """How many could have been tried."""
    trials: tuple[TrialRecord, ...]
    chosen: int
    """The number of the trial that is best on the rows held out."""
    rounds: int
    sites: tuple[SiteChoice, ...]
    alone_left_out: str
    """Why no models alone were fitted; empty if they were."""
    cut_short: bool
    candidate: Candidate
    temperature: float
    """What the logits of its models are divided by before they are mixed."""
    federated: tuple[Tensor, ...] = ()
    """The calibrated probabilities of the chosen trial's models for each site's rows held out."""
    alone: tuple[Tensor, ...] = ()
    """The probabilities of each site's own model for them."""


@dataclass(frozen=True)
class SearchContext(AloneContext):
    """What the processes of a search see."""

    candidates: Sequence[Candidate]


def _advance(context: SearchContext, number: int, progress: Progress, rounds: int, last: bool) -> Progress:
    return trials.advance(context.candidates[number], context.held, progress, rounds, last)


@dataclass
class Search:
    """A search under way."""

    request: AutoRequest
    held: FederatedData
    tell: Callable[[str, float], None]
    """Shows what is being done, and the share of the work that is done."""
    stop: Callable[[], bool]
    done: dict[int, Progress] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    cut_short: bool = False

    def go(self) -> Found:
        """Search, and return what was found."""
        federation, base = self.held.federation, self.request.base
        self.began = time.perf_counter()
        self.candidates = candidates(self.request, self.held)
        limit = base.rounds.rounds if "rounds.rounds" in self.request.fixed else RUNGS[-1]
        self.plan = plan(self.candidates, federation, self.request.budget, limit)
        self.finished, self.work = 0.0, self.plan.seconds
        context = SearchContext(self.held, base.run.seed, self.candidates)
        on_cpu = Hardware.of(base.run).device.type == "cpu"
        workers = base.rounds.workers or cores()
        import sklearn.ensemble  # noqa: F401 (here, before the processes are forked, rather than in each of them)

        self.pool: TaskPool = make_pool(context, workers) if on_cpu else InlinePool(context)
        try:
            order = halve(self.plan.trials, self.plan.rungs, self.advance)
            if not order:
                raise ImperfedError(f"auto: every trial failed; the first one: {next(iter(self.failed.values()))}")
            reason = left_out(federation)
            alone = [] if reason else choose_alone(self.pool, federation, self.request.budget, self.fitted)
        finally:
            self.pool.close()
        return self.found(order[0], alone, reason)

    def advance(self, alive: Sequence[int], rounds: int, last: bool) -> Mapping[int, float]:
        """Train trials up to a round and return their scores."""
        if self.late():
            return {t: self.done[t].score for t in alive}
        tasks: list[Task] = [(_advance, (t, self.done.get(t, Progress()), rounds, last)) for t in alive]
        scores = {}
        for place, result in self.pool.run(tasks):
            number = alive[place]
            if isinstance(result, Failure):
                self.failed[number] = result.reason
            else:
                self.done[number] = result
                scores[number] = result.score
            self.show(alive, rounds)
        return scores

    def late(self) -> bool:
        """Stop if asked to; note if the emergency limit is passed."""
        limit = EMERGENCY * 60 * self.request.budget
        self.cut_short = self.cut_short or (bool(self.done) and time.perf_counter() - self.began > limit)
        return self.cut_short

    def show(self, alive: Sequence[int], rounds: int) -> None:
        """Show progress, and end the search if asked to."""
        text = f"{len(self.done)} of {self.plan.trials} trials begun, {len(alive)} up to round {rounds}"
        best = max((one.score for one in self.done.values()), default=float("nan"))
        before = max((r for r in self.plan.rungs if r < rounds), default=0)
        self.finished += self.plan.seconds * (rounds - before) / max(1, len(alive) * self.plan.rungs[-1])
        self.tell(f"{text}, best {100 * best:.1f} % on rows held out", TRAINING * min(1.0, self.finished / self.work))
        self.heed()

    def fitted(self, done: int, of: int) -> None:
        """Show how many models alone are fitted."""
        self.tell(f"models alone: {done} of {of}", TRAINING + (1 - TRAINING) * done / of)
        self.heed()

    def heed(self) -> None:
        """End the search if asked to."""
        if self.stop():
            raise Interrupted("interrupted in the search")

    def found(self, best: int, alone: Sequence[OwnModel], reason: str) -> Found:
        """Return the outcome: the best trial, and for each site its own model and the weight of the mixture."""
        candidate, progress, federation = self.candidates[best], self.done[best], self.held.federation
        held = federation.validation
        assert held is not None
        logits = trials.held_out_logits(candidate, self.held, progress)
        pairs = [(one, held.at(k)[1]) for k, one in enumerate(logits)]
        heat = fit_temperature(pairs)
        federated = tuple(labels.probabilities(one / heat) for one, labels in pairs)
        sites = tuple(SiteChoice(None, 1.0, None) for _ in federation.sites)
        if alone:
            tables = [mixture_table(held.at(k)[1], federated[k], own.probability) for k, own in enumerate(alone)]
            options = zip(choose(tables), alone, strict=True)
            sites = tuple(SiteChoice(own.kind, WEIGHTS[option], own.score) for option, own in options)
        return Found(
            self.plan,
            len(self.candidates),
            tuple(trials.records(self.candidates, self.done, self.failed)),
            best,
            progress.best or progress.round,
            sites,
            reason,
            self.cut_short,
            candidate,
            heat,
            federated,
            tuple(own.probability for own in alone),
        )
