"""Several methods on the same splits and seeds, from Python."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.api.arguments import as_path
from imperfed.api.call_rows import Rows, guessed, loaded, prepared
from imperfed.api.column_names import Columns, OneColumn
from imperfed.api.parts import split_objects, title_of
from imperfed.api.watching import watching
from imperfed.cli.screen import printed
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import DivergedError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.objective import Objective
from imperfed.data.federate import FederatedData
from imperfed.experiments import comparison, starting
from imperfed.experiments.comparison_line import Line, measured
from imperfed.experiments.config import Config
from imperfed.experiments.federating_gain import brought
from imperfed.experiments.parallel import Outcome, ParallelRuns
from imperfed.experiments.plugins import refuse_what_stays_here
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import load_data
from imperfed.experiments.run_parts import refuse_other_labels
from imperfed.experiments.starting import InMemory
from imperfed.experiments.watch import Watch

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several methods on the same splits and seeds."""

    folder: Path
    lines: tuple[Line, ...]
    seeds: tuple[int, ...]

    @property
    def brought(self) -> str:
        """What federating brought over the best that sites do alone, in a sentence; empty without either of them."""
        return brought(self.lines)

    @property
    def table(self) -> pyarrow.Table:
        """One row per method: the mean and the deviation of its figure over the seeds, and the seconds of a run."""
        import pyarrow

        rows = [{"method": line.method, "mean": line.mean, "spread": line.spread} for line in self.lines]
        seconds = [line.seconds for line in self.lines]
        return pyarrow.Table.from_pylist(rows).append_column("seconds", pyarrow.array(seconds))

    @property
    def report(self) -> Path:
        """The page about the comparison."""
        return self.folder / "report.html"

    def __repr__(self) -> str:
        """Return what was compared and where it lies, in one line."""
        return f"<Comparison of {', '.join(line.method for line in self.lines)}; {self.folder}>"

    def __str__(self) -> str:
        """Return the table and sentences that `imperfed compare` prints at its end."""
        from imperfed.cli.tables import compare_table

        return printed(lambda console: compare_table(console, self.lines, self.seeds, self.folder))

    def _repr_html_(self) -> str:
        """Return the figures of all methods as a table for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(line.method)}</td><td>{100 * line.mean:.1f}</td><td>{100 * line.spread:.1f}</td></tr>"
            for line in self.lines
            if line.values
        )
        columns = f"<tr><th>method</th><th>{escape(measured(self.lines).metric)}, %</th><th>±</th></tr>"
        return f"<p><b>{escape(self.brought)}</b></p><table>{columns}{rows}</table><p>{escape(str(self.report))}</p>"


def compare(
    methods: Sequence[str | Algorithm | Objective | type[Algorithm] | type[Objective]],
    data: Any = "digits",
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs",
    *,
    label: Columns | None = None,
    site: OneColumn | None = None,
    jobs: int = 1,
    progress: bool | None = None,
    alone: bool = True,
    **keywords: Any,
) -> Comparison:
    """Train several methods on the same splits, once per seed; methods, data and settings are those of `run`.

    `jobs`: how many seeds run in parallel, each in a process of its own. Such processes read the data themselves and
    import what they run, so neither rows in memory nor classes of a notebook can be used there.
    `alone`: whether models that sites fit alone are measured beside the methods.
    """
    if isinstance(methods, str):
        raise UsageError(f"methods={methods!r}: one text; hand over a list of names, such as ['pfedpll', 'fedavg']")
    if not isinstance(methods, Iterable):
        raise UsageError(f"methods: expected several in a list; got a value of type {type(methods).__name__}")
    if not (methods := list(methods)):
        raise UsageError("methods=[]: nothing to compare; name at least one, such as ['pfedpll', 'fedavg']")
    seeds = _numbers(seeds)
    rows, name, keywords = prepared(data, {"label": label, "site": site, **keywords})
    if isinstance(rows, Federation) or (rows is not None and not rows.declaration.measured):
        raise UsageError(
            "compare: there are no rows to measure methods on; hand over tables with truth=... or test=..."
        )
    titled = _titled(methods)

    def config(title: str, seed: int) -> Config:
        objects, settings = split_objects({"data": name, **keywords, "method": titled[title]})
        resolved = resolve(words={**settings, "seed": seed, "data_seed": seed}, objects=objects)
        if jobs != 1:
            refuse_what_stays_here(resolved, f"jobs={jobs}: other processes import what they run")
        return resolved

    with watching(progress, None, guessed(rows)) as watch, _processes(rows, jobs) as processes:
        folder, lines = comparison.compare(
            list(titled),
            seeds,
            config,
            as_path(out, "out"),
            lambda: watch,
            processes=processes,
            alone=alone,
            load=lambda config: loaded(rows, config)[0] or load_data(config),
        )
    return Comparison(folder, tuple(lines), seeds)


def _numbers(seeds: Any) -> tuple[int, ...]:
    """Return the seeds as Python's whole numbers, from any sequence of such numbers."""
    try:
        return tuple(map(operator.index, seeds))
    except TypeError:
        raise UsageError(f"seeds={seeds!r}: expected whole numbers in a list, such as [0, 1, 2]") from None


def _titled(methods: Sequence[Any]) -> Mapping[str, Any]:
    """Return the methods by title; refuse two that would train the same models."""
    titled: dict[str, Any] = {}
    for method in methods:
        if (title := title_of(method)) in titled:
            raise UsageError(f"methods: {title} was handed over more than once")
        titled[title] = method
    return titled


def _processes(rows: Rows | None, jobs: int) -> ParallelRuns:
    if rows is None:
        return ParallelRuns(jobs)
    if jobs != 1:
        raise UsageError(f"jobs={jobs}: rows in memory stay in this process; leave it out, or write them to files")
    return MemoryRuns(rows)


class MemoryRuns(ParallelRuns):
    """Runs on rows in memory, one after the other in this process."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(1)
        self.rows = rows

    def outcomes(
        self, configs: Sequence[Sequence[Config]], folder: Path, watch: Callable[[], Watch]
    ) -> Iterator[Sequence[Outcome]]:
        """Yield the outcomes of every seed's runs, in order."""
        for runs in configs:
            parts = [loaded(self.rows, config) for config in runs]
            for config, (data, _) in zip(runs, parts, strict=True):
                assert data is not None
                refuse_other_labels(config, data)
            yield [_outcome(config, folder, watch(), *part) for config, part in zip(runs, parts, strict=True)]


def _outcome(
    config: Config, folder: Path, watch: Watch, data: FederatedData | None, in_memory: InMemory | None
) -> Outcome:
    try:
        return starting.start(config, folder, watch, data, in_memory)[1]
    except DivergedError as error:
        return str(error)
