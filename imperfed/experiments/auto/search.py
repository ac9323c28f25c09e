"""The whole search: trials by halving, models alone at each site, and the mixture of the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from imperfed.core.errors import ImperfedError
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.failures import Failure
from imperfed.evaluation.paired import Difference
from imperfed.evaluation.temperature import most_likely
from imperfed.experiments.auto import trials
from imperfed.experiments.auto.alone_search import families, left_out
from imperfed.experiments.auto.combinations import Combination, combinations_to_try
from imperfed.experiments.auto.consensus import contradictory, leaves_open, weight_of
from imperfed.experiments.auto.halving import halve
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.search_sites import SearchSites, Settled, SiteChoice
from imperfed.experiments.auto.site_choice import added, common_option
from imperfed.experiments.auto.trials import Progress, TrialRecord
from imperfed.experiments.auto.work import RUNGS, SearchPlan, plan
from imperfed.experiments.watch import Interrupted

TRAINING = 0.7
"""The share of a search, roughly, that trials take; models alone take the rest."""
EMERGENCY = 4.0
"""A search that takes so many times its budget is cut short, which is recorded: its choice is then not repeatable."""


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search."""

    plan: SearchPlan
    combinations: int
    """How many could have been tried."""
    trials: tuple[TrialRecord, ...]
    chosen: int
    """The number of the trial that is best on the rows held out."""
    rounds: int
    """The round after which it was best: as many as the run that follows has."""
    sites: tuple[SiteChoice, ...]
    """What each site predicts with: its own model, and the weight of the federated one."""
    alone_left_out: str
    """Why no models alone were fitted; empty if they were."""
    cut_short: bool
    combination: Combination
    """What the chosen trial is a trial of."""
    temperature: float
    """What the logits of its models are divided by before they are mixed."""
    mixture_temperature: float
    """What the logits of the mixtures are divided by: calibrated models do not make a calibrated mixture."""
    difference: Difference | None
    """Between the mixtures and the sites' own models, on the rows held out."""
    consensus: bool = False
    """Whether trials were judged by what all agree on."""


@dataclass
class Search:
    """A search under way."""

    request: AutoRequest
    held: FederatedData
    """The data with rows held out; they may be elsewhere."""
    make_sites: Callable[[Sequence[Combination]], SearchSites]
    progress: Callable[[str, float], None]
    """Shows what is being done, and the share of the work that is done."""
    stop: Callable[[], bool]
    emergency: float = EMERGENCY
    done: dict[int, Progress] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    cut_short: bool = False
    consensus: bool = False
    """Whether trials are judged by what all agree on."""

    def go(self) -> SearchOutcome:
        """Search, and return what was found."""
        base = self.request.base
        self.began = time.perf_counter()
        self.combinations = combinations_to_try(self.request, self.held)
        limit = base.rounds.rounds if "rounds.rounds" in self.request.fixed else RUNGS[-1]
        self.plan = plan(self.combinations, self.held, self.request.budget, limit)
        self.finished, self.work = 0.0, self.plan.seconds
        self.sites = self.make_sites(self.combinations)
        with closing(self.sites):
            order = halve([one.recipe for one in self.combinations[: self.plan.trials]], self.plan.rungs, self.advance)
            if not order:
                raise ImperfedError(f"auto: every trial failed; the first one: {next(iter(self.failed.values()))}")
            return self.outcome(order[0])

    def advance(self, alive: Sequence[int], rounds: int, last: bool) -> Mapping[int, float]:
        """Train trials up to a round and return their scores."""
        if self.late():
            return {t: self.done[t].score for t in alive}
        scores = {}
        for number, result in self.sites.advance(alive, self.done, rounds, last):
            if isinstance(result, Failure):
                self.failed[number] = result.reason
            else:
                self.done[number] = result
                scores[number] = result.score
            self.show(alive, rounds)
        return self.judged(scores)

    def judged(self, scores: Mapping[int, float]) -> Mapping[int, float]:
        """Return the scores of trials, by what all agree on if labels leave classes open and scores claim too much."""
        if not scores or not leaves_open(type(self.held.federation.labels)):
            return scores
        self.sites.apply([*scores], self.done)
        return self.by_consensus([*scores]) or scores

    def by_consensus(self, numbers: Sequence[int]) -> dict[int, float]:
        """Return how far trials agree with what all agree on; empty where their own scores can be believed."""
        held = self.held.federation.validation
        assert held is not None
        *hits, agreeing = added(self.sites.agree(numbers, self.weights())).tolist()
        rows = sum(held.sizes())
        self.consensus = contradictory([one.score for one in self.done.values()], agreeing, rows)
        return {t: hit / rows for t, hit in zip(numbers, hits, strict=True)} if self.consensus else {}

    def weights(self) -> dict[int, float]:
        """Return how much the word of each trial counts."""
        return {number: weight_of(one.score) for number, one in self.done.items()}

    def late(self) -> bool:
        """Stop if asked to; note if the emergency limit is passed."""
        limit = self.emergency * 60 * self.request.budget
        self.cut_short = self.cut_short or (bool(self.done) and time.perf_counter() - self.began > limit)
        return self.cut_short

    def show(self, alive: Sequence[int], rounds: int) -> None:
        """Show progress, and end the search if asked to."""
        text = f"{len(self.done)} of {self.plan.trials} trials begun, {len(alive)} up to round {rounds}"
        best = max((one.score for one in self.done.values()), default=float("nan"))
        before = max((r for r in self.plan.rungs if r < rounds), default=0)
        self.finished += self.plan.seconds * (rounds - before) / max(1, len(alive) * self.plan.rungs[-1])
        self.progress(
            f"{text}, best {100 * best:.1f} % on rows held out", TRAINING * min(1.0, self.finished / self.work)
        )
        self.heed()

    def fitted(self, done: int, of: int) -> None:
        """Show how many models alone are fitted."""
        self.progress(f"models alone: {done} of {of}", TRAINING + (1 - TRAINING) * done / of)
        self.heed()

    def heed(self) -> None:
        """End the search if asked to."""
        if self.stop():
            raise Interrupted("interrupted in the search")

    def outcome(self, best: int) -> SearchOutcome:
        """Return the outcome: the best trial, and for each site its own model and the weight of the mixture."""
        federation, progress = self.held.federation, self.done[best]
        scores = self.by_consensus(sorted(self.done)) if self.consensus else {}
        if scores:
            self.sites.judge_by_consensus(self.weights())
        heat = most_likely([sums.tolist() for sums in self.sites.calibrate(best, progress)])
        settled = Settled([SiteChoice(None, 1.0, None) for _ in federation.sites], None, [])
        reason = left_out(federation, width(federation.x) or self.request.base.model.features)
        if not reason:
            kinds = families(federation, self.request.budget)
            family = common_option(self.sites.fit_alone(kinds, self.fitted))
            settled = self.sites.settle(common_option(self.sites.mix(family, heat)))
        calibrated = not federation.labels.uncalibrated
        return SearchOutcome(
            self.plan,
            len(self.combinations),
            tuple(trials.records(self.combinations, self.done, self.failed, scores)),
            best,
            progress.best or progress.round,
            tuple(settled.choices),
            reason,
            self.cut_short,
            self.combinations[best],
            heat,
            most_likely([sums.tolist() for sums in settled.sums]) if calibrated else 1.0,
            settled.difference,
            bool(scores),
        )
