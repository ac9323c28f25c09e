"""When a run first reached a target figure: after how many rounds, and how many seconds of training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from imperfed.engine.schedule import RoundReport

Record = dict[str, Any]

SECONDS = "seconds"
"""The metric of a round's training time, without evaluation; recorded where a target is set, as no two runs agree."""


def time_taken(report: RoundReport) -> Record:
    """A round's line of `metrics.jsonl` about its time."""
    return {"round": report.round + 1, "site": "*", "metric": SECONDS, "value": round(report.seconds, 6)}


def reached(records: Iterable[Record], metric: str, target: float) -> Record:
    """The first round whose figure is the target or more, None where there is none, and the seconds until then.

    The figure is the global model's on the common test set or, where there is none, the mean over the sites.
    """
    told: dict[str, dict[int, list[float]]] = {}
    for r in records:
        told.setdefault(r["metric"], {}).setdefault(r["round"], []).append(r["value"])
    common = told.get(f"test/global/{metric}", {})
    course = common or told.get(f"test/personal/{metric}", {})
    there = [at for at, values in course.items() if math.fsum(values) / len(values) >= target]
    first = min(there, default=None)
    spent = [value for at, values in told.get(SECONDS, {}).items() if first and at <= first for value in values]
    return {
        "value": target,
        "of": "global model" if common else "mean over sites",
        "round": first,
        "seconds": round(math.fsum(spent), 3) if first else None,
    }


def sentence(target: Record) -> str:
    """The target in words."""
    goal = f"{100 * target['value']:g} % ({target['of']})"
    if target["round"] is None:
        return f"{goal} was not reached"
    return f"{goal} was reached after round {target['round']}, {target['seconds']:.1f} s of training"
