"""Time to a target figure: the rounds and the seconds of training until a run first reached it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imperfed.engine.schedule import RoundReport

Record = dict[str, Any]
"""A line of `metrics.jsonl`."""

SECONDS = "seconds"
"""The metric of a round's training time without evaluation; recorded only if a target is set, as it varies by run."""


def time_taken(report: RoundReport) -> Record:
    """Return the line of `metrics.jsonl` with a round's training time."""
    return {"round": report.round + 1, "site": "*", "metric": SECONDS, "value": round(report.seconds, 6)}


@dataclass(frozen=True)
class TargetReached:
    """When a run first reached a target figure; None if it never did."""

    value: float
    """The target."""
    of: str
    """The figure that should reach it."""
    round: int | None
    seconds: float | None
    """Seconds of training until then."""

    @classmethod
    def find(cls, records: Iterable[Record], metric: str, target: float) -> TargetReached:
        """Find the first round whose figure is at least the target.

        The figure is that of the global model on the common test set or, if there is none, the mean over the sites.
        """
        values: dict[str, dict[int, list[float]]] = {}
        for r in records:
            values.setdefault(r["metric"], {}).setdefault(r["round"], []).append(r["value"])
        common = values.get(f"test/global/{metric}", {})
        course = common or values.get(f"test/personal/{metric}", {})
        of = "global model" if common else "mean over sites"
        rounds = [at for at, figures in course.items() if math.fsum(figures) / len(figures) >= target]
        if not rounds:
            return cls(target, of, None, None)
        spent = [s for at, seconds in values.get(SECONDS, {}).items() if at <= min(rounds) for s in seconds]
        return cls(target, of, min(rounds), round(math.fsum(spent), 3))

    def sentence(self) -> str:
        """Describe it in one sentence."""
        goal = f"{100 * self.value:g} % ({self.of})"
        if self.round is None:
            return f"{goal} was not reached"
        return f"{goal} was reached after round {self.round}, {self.seconds:.1f} s of training"
