"""The tables of a kind, from its records alone: an order over all datasets, and every dataset by itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from imperfed.benchmark.kinds import BenchmarkKind, BenchmarkSet
from imperfed.benchmark.ranking import Figures, MethodPlace, PairedInterval, places
from imperfed.benchmark.records import BenchmarkRecord
from imperfed.experiments.reproduction.measures import Measure, measure

Runs = Mapping[str, Mapping[str, Sequence[BenchmarkRecord]]]
"""By dataset and method."""
Columns = dict[str, list[str]]


@dataclass(frozen=True)
class BenchmarkTable:
    """One table: its columns by title, and what is said below it."""

    title: str
    columns: Columns
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return it in Markdown."""
        lines = [list(self.columns), ["---"] * len(self.columns), *map(list, zip(*self.columns.values(), strict=True))]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join([f"**{self.title}**", table, *([" ".join(self.notes)] if self.notes else [])])


def tables(kind: BenchmarkKind, runs: Runs) -> list[BenchmarkTable]:
    """Return all tables: first the orders over several datasets of the same kind of labels."""
    measured = [dataset for dataset in kind.datasets if runs.get(dataset.name)]
    groups = {
        labels: [one for one in measured if one.labels == labels]
        for labels in dict.fromkeys(d.labels for d in measured)
    }
    overall = [table for group in groups.values() if len(group) > 1 and (table := _overall(kind, group, runs))]
    return [*overall, *(_of_dataset(kind, dataset, runs[dataset.name]) for dataset in measured)]


def figures_of(kind: BenchmarkKind, datasets: Sequence[BenchmarkSet], runs: Runs) -> Figures:
    """Return the figures of all methods, except references, that have every dataset with every seed of it."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for method in dict.fromkeys(name for one in datasets for name in runs[one.name]):
        made = {one.name: runs[one.name].get(method, ()) for one in datasets}
        if method in kind.references or not all(_complete(kind, runs[name], own) for name, own in made.items()):
            continue
        found[method] = {name: {run.seed: _value(kind, run) for run in own} for name, own in made.items()}
    return found


def _complete(
    kind: BenchmarkKind, others: Mapping[str, Sequence[BenchmarkRecord]], own: Sequence[BenchmarkRecord]
) -> bool:
    """Return whether a method fits the data, and has as many seeds as any other."""
    wanted = {run.seed for found in others.values() for run in found}
    measured = {run.seed for run in own if run.diverged or run.figures.get(kind.figure) is not None}
    return measured == wanted


def _value(kind: BenchmarkKind, run: BenchmarkRecord) -> float:
    value = run.figures.get(kind.figure)
    return math.nan if value is None else value


def _overall(kind: BenchmarkKind, datasets: Sequence[BenchmarkSet], runs: Runs) -> BenchmarkTable | None:
    """Return the order over several datasets; None if no two methods have all of them."""
    figures = figures_of(kind, datasets, runs)
    if len(figures) < 2:
        return None
    found, one = places(figures, kind.best == "high"), measure(kind.figure)
    columns = _placed(found, one)
    for dataset in datasets:
        means = [statistics.fmean(figures[place.method][dataset.name].values()) for place in found]
        columns[dataset.name] = [_shown(one, value) for value in means]
    names = ", ".join(dataset.name for dataset in datasets)
    return BenchmarkTable(
        f"Over {len(datasets)} datasets ({names})", columns, tuple(_about_order(kind, datasets, runs, figures))
    )


def _about_order(kind: BenchmarkKind, datasets: Sequence[BenchmarkSet], runs: Runs, figures: Figures) -> Iterator[str]:
    """Yield who is not in the order, and why."""
    every = dict.fromkeys(method for dataset in datasets for method in runs[dataset.name])
    if out := [method for method in every if method not in figures and method not in kind.references]:
        yield f"Without a place, since runs are missing or it does not fit all data: {', '.join(map(_code, out))}."


def _placed(found: Sequence[MethodPlace], one: Measure) -> Columns:
    """Return the columns that say where every method stands."""
    return {
        "rank": [f"{place.rank:.1f}" for place in found],
        "method": [_code(place.method) for place in found],
        one.title: [_shown(one, place.mean) for place in found],
        "to the best": [_difference(one, place.to_best) for place in found],
        "clearly above / below": [f"{place.above} / {place.below}" for place in found],
    }


def _of_dataset(
    kind: BenchmarkKind, dataset: BenchmarkSet, runs: Mapping[str, Sequence[BenchmarkRecord]]
) -> BenchmarkTable:
    """Return the table of one dataset: those with a place, then those with fewer seeds, then references."""
    figures = figures_of(kind, [dataset], {dataset.name: runs})
    found = places(figures, kind.best == "high") if figures else []
    others = [method for method, own in runs.items() if method not in figures and any(run.figures for run in own)]
    others.sort(key=lambda method: method in kind.references)
    methods = [*(place.method for place in found), *others]
    one = measure(kind.figure)
    columns = {title: [*cells, *([""] * len(others))] for title, cells in _placed(found, one).items()}
    columns["method"] = list(map(_code, methods))
    columns[one.title] = [_spread(one, runs[method], kind.figure) for method in methods]
    for name in kind.figures:
        if name != kind.figure:
            columns[measure(name).title] = [
                _spread(measure(name), runs[method], name, with_spread=False) for method in methods
            ]
    columns["s per run"] = [_seconds(runs[method]) for method in methods]
    columns["chosen"] = [_chosen(runs[method]) for method in methods]
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    about = f": {dataset.about}" if dataset.about else ""
    return BenchmarkTable(f"{dataset.name}{about}", columns, tuple(_about_runs(kind, runs)))


def _about_runs(kind: BenchmarkKind, runs: Mapping[str, Sequence[BenchmarkRecord]]) -> Iterator[str]:
    """Yield which seeds, versions and machines, and what did not work."""
    every = [run for own in runs.values() for run in own]
    seeds, devices = sorted({run.seed for run in every}), sorted({run.device for run in every})
    versions = ", ".join(sorted({run.version for run in every}))
    yield f"Seeds {', '.join(map(str, seeds))}; {versions}; {', '.join(devices)}."
    if shown := [method for method in kind.references if method in runs]:
        yield f"References, without a rank: {', '.join(map(_code, shown))}."
    for method, own in runs.items():
        if failures := [run for run in own if run.failed]:
            yield f"{_code(method)}, seed {', '.join(str(run.seed) for run in failures)}: {failures[0].failed}."


def _seconds(own: Sequence[BenchmarkRecord]) -> str:
    """Return the mean of the runs that were trained to the end; others have no time."""
    ended = [run.seconds for run in own if not run.failed]
    return f"{statistics.fmean(ended):.1f}" if ended else ""


def _chosen(own: Sequence[BenchmarkRecord]) -> str:
    """Return the settings that were chosen, without their sections."""
    settings = own[0].settings.items()
    return ", ".join(
        f"{key.rpartition('.')[2]} {value:g}" if isinstance(value, float) else f"{key.rpartition('.')[2]} {value}"
        for key, value in settings
    )


def _spread(one: Measure, own: Sequence[BenchmarkRecord], name: str, with_spread: bool = True) -> str:
    values = [value for run in own if (value := run.figures.get(name)) is not None]
    if not with_spread:
        return _shown(one, statistics.fmean(values)) if values else ""
    if not values:
        return "diverged" if any(run.diverged for run in own) else ""
    return one.spread(values) + (f" ({len(values)} of {len(own)} seeds)" if len(values) < len(own) else "")


def _shown(one: Measure, value: float) -> str:
    return "diverged" if math.isnan(value) else one.shown(value)


def _difference(one: Measure, found: PairedInterval | None) -> str:
    """Return a difference with its interval; bold if it leaves out 0."""
    if found is None:
        return ""
    mean, low, high = (f"{one.scale * value:+.{one.digits}f}" for value in (found.mean, found.low, found.high))
    if math.isinf(found.low):
        return f"{mean} (no interval)"
    text = f"{mean} ({low} to {high})"
    return f"**{text}**" if found.is_clear else text


def _code(method: str) -> str:
    return f"`{method}`"
