"""How a run proceeds, and what is known after each of its rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from imperfed.core.context import SiteVerdict
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.labels.validity import UNKNOWN, Validity
from imperfed.engine.failures import Failure
from imperfed.engine.population import Scores


@dataclass(frozen=True)
class Rounds:
    """How a run proceeds."""

    rounds: int = 30  # T
    participation: float = 1.0  # share of the sites that take part in a round
    workers: int = 0  # worker processes; 0: one per core; 1: the calling process
    evaluate_every: int = 1
    evaluate_sites: int = 1000  # the most sites on whose rows a round is judged, drawn once; at the end all are; 0: all
    checkpoint_every: int = 10
    on_failure: Literal["skip", "retry", "stop"] = "skip"  # a failed site: leave it out, ask it again, or end the run
    retries: int = 2
    quorum: float = 0.5  # share of a round's sites that must answer
    patience: int = 0  # with split.validation: end after this many evaluated rounds without a better score; 0: never
    keep_best: bool = True  # with split.validation: the results are those of the best round, not of the last one
    max_share: float = 0.0  # most weight of one site by its rows; 0: with three or more real sites 0.5, else no limit
    site_memory: float = 1000.0  # MB that all sites may remember in memory; where it is more, it lies on disk
    target: float = 0.0  # figure, as a fraction; the first round to reach it and the time taken are reported; 0: none

    def __post_init__(self) -> None:
        positive(
            "rounds",
            rounds=self.rounds,
            participation=self.participation,
            evaluate_every=self.evaluate_every,
            checkpoint_every=self.checkpoint_every,
        )
        not_negative("rounds", workers=self.workers, retries=self.retries, quorum=self.quorum, target=self.target)
        not_negative("rounds", max_share=self.max_share, site_memory=self.site_memory)
        not_negative("rounds", patience=self.patience, evaluate_sites=self.evaluate_sites)
        if max(self.participation, self.quorum, self.target, self.max_share) > 1:
            raise UsageError("rounds.participation, quorum, target and max_share are shares, so at most 1")

    def quorum_of(self, asked: int) -> int:
        """Return how many of so many sites must answer."""
        return max(1, math.ceil(round(self.quorum * asked, 9)))  # 0.55 of 100 are 55, and not 55.00000000000001


@dataclass
class RoundReport:
    """What is known after a round."""

    round: int
    who: tuple[int, ...]
    losses: dict[int, float]
    failures: dict[int, Failure]
    down: int = 0
    up: int = 0
    seconds: float = 0.0
    """The time of the round, without evaluation."""
    sent: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name and shape of everything that left a site."""
    notes: list[str] = field(default_factory=list)
    verdicts: list[SiteVerdict] = field(default_factory=list)
    personal: dict[int, Scores] = field(default_factory=dict)
    common: Scores = field(default_factory=dict)
    validity: dict[int, Validity] = field(default_factory=dict)
    """How far each site's model agrees with the labels of the rows that the site holds out; empty if not evaluated."""
    validation: Validity = UNKNOWN
    """The mean over the sites, by weight."""
    epsilons: dict[int, float] = field(default_factory=dict)
    """What the sites on duty have spent of their privacy up to this round, where the run is private."""
    best: int = 0
    """The best round so far, counted from 1; 0: none."""

    def course(self, digits: int = 3) -> str:
        """Return the mean training loss in words; what privacy has cost where no site sends its loss."""
        if self.epsilons:
            return f"epsilon {max(self.epsilons.values()):.3g}"
        if not self.losses:
            return "no losses are sent"
        return f"loss {sum(self.losses.values()) / max(len(self.losses), 1):.{digits}f}"
