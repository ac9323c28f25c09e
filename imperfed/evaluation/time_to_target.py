"""When a run first reached a target figure: after how many rounds, and how many seconds of training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imperfed.engine.schedule import RoundReport

Record = dict[str, Any]
"""A line of `metrics.jsonl`."""

SECONDS = "seconds"
"""The metric of a round's training time, without evaluation; recorded where a target is set, as no two runs agree."""


def time_taken(report: RoundReport) -> Record:
    """A round's line of `metrics.jsonl` about its time."""
    return {"round": report.round + 1, "site": "*", "metric": SECONDS, "value": round(report.seconds, 6)}


@dataclass(frozen=True)
class TargetReached:
    """When a run first reached a target figure; None where it never did."""

    value: float
    """The target."""
    of: str
    """Which figure was to reach it."""
    round: int | None
    seconds: float | None
    """Of training until then."""

    @classmethod
    def find(cls, records: Iterable[Record], metric: str, target: float) -> TargetReached:
        """Find the first round whose figure is the target or more.

        The figure is the global model's on the common test set or, where there is none, the mean over the sites.
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
        """Say it in words."""
        goal = f"{100 * self.value:g} % ({self.of})"
        if self.round is None:
            return f"{goal} was not reached"
        return f"{goal} was reached after round {self.round}, {self.seconds:.1f} s of training"
