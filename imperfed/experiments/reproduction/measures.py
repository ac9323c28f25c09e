"""What a study reports of a run, by name, read from the run's summary and metrics.

Names of figures with a part after a colon, such as `global:p@1` and `class:Nodule`, say which one of several is meant.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imperfed.core.errors import unknown
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

Value = float | None


@dataclass(frozen=True)
class Measure:
    """One figure of a run."""

    title: str
    of: Callable[[Summary, RunFolder], Value]
    scale: float = 100.0
    """What a value is multiplied by to be shown, in per cent unless this is 1."""
    digits: int = 2
    from_reference: bool = False
    """Whether it is the distance from the reference run of the same seed."""

    def shown(self, value: float) -> str:
        """Format a value."""
        return f"{self.scale * value:.{self.digits}f}"

    def spread(self, values: Sequence[float]) -> str:
        """Format mean and sample standard deviation; the mean alone for one value; empty for none."""
        if not values:
            return ""
        more = f" ± {self.shown(statistics.stdev(values))}" if len(values) > 1 else ""
        return self.shown(statistics.fmean(values)) + more


def measure(name: str) -> Measure:
    """Return a measure by its name."""
    kind, _, own = name.partition(":")
    if own and kind in FAMILIES:
        return FAMILIES[kind](own)
    if name not in MEASURES:
        raise unknown("measure", name, [*MEASURES, *(f"{family}:..." for family in FAMILIES)])
    return MEASURES[name]


def _global(name: str) -> Measure:
    """Return a figure of the global model."""

    def of(summary: Summary, folder: RunFolder) -> Value:
        found = summary.common.get(name)
        return None if found is None else found.value

    return Measure({"map": "mAP, %"}.get(name, f"{name.upper()}, %"), of)


def _class(name: str) -> Measure:
    """Return the AUROC of one class, a mean over sites."""

    def of(summary: Summary, folder: RunFolder) -> Value:
        return next((one.auroc for one in summary.by_class if one.name == name), None)

    return Measure(f"{name}, %", of)


FAMILIES: dict[str, Callable[[str], Measure]] = {"global": _global, "class": _class}


def _of_global(summary: Summary, folder: RunFolder) -> Value:
    found = summary.common.get(summary.metric)
    return None if found is None else found.value


def _over_sites(key: str) -> Callable[[Summary, RunFolder], Value]:
    def of(summary: Summary, folder: RunFolder) -> Value:
        known = [value for site in summary.sites if (value := getattr(site, key)) is not None]
        return statistics.fmean(known) if known else None

    return of


def _fair(key: str) -> Callable[[Summary, RunFolder], Value]:
    def of(summary: Summary, folder: RunFolder) -> Value:
        between = None if summary.fairness is None else summary.fairness.candidate
        return None if between is None else getattr(between, key).value

    return of


def _labels(summary: Summary, folder: RunFolder) -> Value:
    """Return how well labels were resolved or filled in; after a repair, the share that is right."""
    if summary.labels is None and summary.repair is not None and summary.repair.figures is not None:
        wrong = summary.repair.figures.noise_after
        return None if wrong is None else 1 - wrong
    return None if summary.labels is None else summary.labels.leading


def _gap(summary: Summary, folder: RunFolder) -> Value:
    eod = _fair("eod")(summary, folder)
    return None if eod is None else abs(eod)


def _rand_index(summary: Summary, folder: RunFolder) -> Value:
    return None if summary.repair is None else summary.repair.adjusted_rand_index


def _per_round(summary: Summary, folder: RunFolder) -> Value:
    return None if summary.seconds is None else summary.seconds / summary.rounds


def _rounds_to_target(summary: Summary, folder: RunFolder) -> Value:
    return None if summary.target is None else summary.target.round


def _minutes_to_target(summary: Summary, folder: RunFolder) -> Value:
    seconds = None if summary.target is None else summary.target.seconds
    return None if seconds is None else seconds / 60


def _bytes(way: str, each: str) -> Callable[[Summary, RunFolder], Value]:
    """Return the mean number of bytes of a round, for the server or for each site."""

    def of(summary: Summary, folder: RunFolder) -> Value:
        sent = [record["value"] for record in folder.records() if record["metric"] == f"bytes/{way}"]
        sites = len(summary.facts.rows) if each == "site" else 1
        return statistics.fmean(sent) / sites if sent else None

    return of


MEASURES: dict[str, Measure] = {
    "mean": Measure("mean over sites, %", lambda summary, folder: summary.headline),
    "worst": Measure("worst site, %", lambda summary, folder: summary.personal.worst),
    "by rows": Measure("accuracy", lambda summary, folder: summary.personal.weighted, 1.0, 3),
    "global": Measure("global model, %", _of_global),
    "labels": Measure("labels resolved, %", _labels),
    "annotated": Measure("annotated at the site, %", _over_sites("auroc_annotated")),
    "never annotated": Measure("never annotated there, %", _over_sites("auroc_never_annotated")),
    "eod": Measure("EOD", _fair("eod"), 1.0, 3),
    "spd": Measure("SPD", _fair("spd"), 1.0, 3),
    "gap": Measure("distance of EOD from 0", _gap, 1.0, 3),
    "delta eod": Measure("ΔEOD", _fair("eod"), 1.0, 3, from_reference=True),
    "delta spd": Measure("ΔSPD", _fair("spd"), 1.0, 3, from_reference=True),
    "rand index": Measure("adjusted Rand index", _rand_index, 1.0),
    "rounds to target": Measure("rounds to the target", _rounds_to_target, 1.0, 1),
    "minutes to target": Measure("minutes to the target", _minutes_to_target, 1.0),
    "seconds per round": Measure("s per round", _per_round, 1.0),
    "kB down per site": Measure("kB to a site", _bytes("down", "site"), 1e-3, 1),
    "kB up per site": Measure("kB from a site", _bytes("up", "site"), 1e-3, 1),
}
