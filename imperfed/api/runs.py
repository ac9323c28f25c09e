"""Runs from Python, with the settings, folders and figures of the command line, on files or on data in memory.

result = imperfed.run("pfedpll", data=frame, label="candidates", site="clinic", rounds=5)
result.summary.personal.mean
result.labels().to_pandas()
result.predict(new_rows, site="north")
imperfed.load("runs/...")  # the result of a run that has ended
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.api.declared import MemoryData, read_again, read_tables, split_keywords
from imperfed.api.handed_over import FORMS, is_in_memory
from imperfed.api.result import RunResult
from imperfed.api.watching import OnRound, watching
from imperfed.core.errors import DivergedError, UsageError
from imperfed.core.federation import Federation
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE, read_declaration
from imperfed.data.files.memory import IN_MEMORY
from imperfed.data.own_files import federate_ready
from imperfed.experiments import comparison, experiment
from imperfed.experiments.auto.run import resume as continue_run
from imperfed.experiments.auto.run import start_any
from imperfed.experiments.comparison import Line
from imperfed.experiments.config import Config, resolve
from imperfed.experiments.experiment import InMemory, Watch, refuse_other_labels
from imperfed.experiments.parallel import Outcome, ParallelRuns
from imperfed.results.folder import RunFolder

if TYPE_CHECKING:
    import pyarrow

    from imperfed.census.inspect import Inspection

Rows = MemoryData | Federation


def run(
    method: str = "auto",
    data: Any = "digits",
    out: str | Path = "runs",
    *,
    progress: bool | None = None,
    on_round: OnRound | None = None,
    **keywords: Any,
) -> RunResult:
    """Train one method in a new folder below `out`, and return its result; `auto` searches for the best one.

    `data`: the name of a dataset, a path, a table with a `site` column, {site: table}, {site: (x, labels)},
    {site: torch Dataset} or a `Federation`. Data in memory are described by the keys of federation.toml: `label` (a
    column, or one per class), `site`, `kind`, `classes`, `inputs`, `id`, `group`, `truth`, `separator`, `missing`,
    `uncertain`, `attribute`, `name`; further rows are `test`, `public` and `trusted`. What is left out is guessed.

    `progress`: whether to print it; by default in terminals and notebooks. `on_round` is called with the report of
    every round, and ends the run by returning True. All other keywords are settings, as `--set` takes them.
    """
    _refuse_other(method, "method", str, "the name of a method, such as 'pfedpll'")
    rows, name, settings = _prepared(data, keywords)
    words = {"method": method, "data": name, **settings}
    with watching(progress, on_round, _guessed(rows)) as watch:
        folder, summary = start_any(None, words, _path(out, "out"), watch, lambda config: _loaded(rows, config))
    return RunResult(folder.path, summary)


def resume(
    folder: str | Path,
    data: Any = None,
    *,
    progress: bool | None = None,
    on_round: OnRound | None = None,
    **further: Any,
) -> RunResult:
    """Continue a run that was interrupted. Rows that were handed over in memory are handed over again.

    `further`: `test`, `public` and `trusted`, if the run began with them. The columns are read as in the beginning.
    """
    path = _path(folder, "folder")
    opened = RunFolder.open(path)
    config = opened.config()
    federated = None
    if data is not None:
        if config.run.data != IN_MEMORY:
            raise UsageError(f"data=...: the rows of {path} are read from {config.run.data}; leave it out")
        federated = _again(opened, data, further, config)
    with watching(progress, on_round) as watch:
        return RunResult(path, continue_run(opened, watch, federated))


def load(folder: str | Path) -> RunResult:
    """Return the result of a run that has ended, from its folder."""
    path = _path(folder, "folder")
    summary = RunFolder.open(path).summary()
    if summary is None:
        raise UsageError(f"{path}: this run has not ended; continue with: imperfed resume {path}")
    return RunResult(path, summary)


def inspect(path: str | Path) -> Inspection:
    """Return what `imperfed inspect` reports about files, and write federation.toml if there is none."""
    from imperfed.census.inspect import inspect as inspect_files

    return inspect_files(_path(path, "path"))


# -- comparisons -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Several methods on the same splits and seeds."""

    folder: Path
    lines: tuple[Line, ...]

    @property
    def table(self) -> pyarrow.Table:
        """One row per method: the mean and the deviation of its figure over the seeds, and the seconds of a run."""
        import pyarrow

        rows = [{"method": line.method, "mean": line.mean, "spread": line.spread} for line in self.lines]
        seconds = [line.seconds for line in self.lines]
        return pyarrow.Table.from_pylist(rows).append_column("seconds", pyarrow.array(seconds))


def compare(
    methods: Sequence[str],
    data: Any = "digits",
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs",
    *,
    progress: bool | None = None,
    alone: bool = True,
    **keywords: Any,
) -> Comparison:
    """Train several methods on the same splits, once per seed; data and settings are those of `run`.

    `alone`: whether models that sites fit alone with scikit-learn are measured beside them.
    """
    if isinstance(methods, str):
        raise UsageError(f"methods={methods!r}: one text; hand over a list of names, such as ['pfedpll', 'fedavg']")
    rows, name, settings = _prepared(data, keywords)
    if isinstance(rows, Federation) or (rows is not None and not rows.declaration.measured):
        raise UsageError(
            "compare: there are no rows to measure methods on; hand over tables with truth=... or test=..."
        )

    def config(method: str, seed: int) -> Config:
        return resolve(words={"data": name, **settings, "method": method, "seed": seed, "data_seed": seed})

    with watching(progress, None, _guessed(rows)) as watch:
        processes = ParallelRuns(1) if rows is None else MemoryRuns(rows)
        load = (lambda config: _loaded(rows, config)[0] or experiment.load_data(config)) if alone else None
        folder, lines = comparison.compare(
            methods, seeds, config, _path(out, "out"), lambda: watch, processes=processes, alone=load
        )
    return Comparison(folder, tuple(lines))


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
            loaded = [_loaded(self.rows, config) for config in runs]
            for config, (data, _) in zip(runs, loaded, strict=True):
                assert data is not None
                refuse_other_labels(config, data)
            yield [_outcome(config, folder, watch(), *part) for config, part in zip(runs, loaded, strict=True)]


def _outcome(
    config: Config, folder: Path, watch: Watch, data: FederatedData | None, in_memory: InMemory | None
) -> Outcome:
    try:
        return experiment.start(config, folder, watch, data, in_memory)[1]
    except DivergedError as error:
        return str(error)


# -- data --------------------------------------------------------------------------------------------------------------


def _prepared(data: Any, keywords: Mapping[str, Any]) -> tuple[Rows | None, str, dict[str, Any]]:
    """Return the rows in memory, what `run.data` says, and the settings."""
    in_memory = is_in_memory(data)
    described, settings = split_keywords(keywords, in_memory)
    if in_memory:
        return read_tables(data, described), IN_MEMORY, settings
    if isinstance(data, Federation):
        return data, IN_MEMORY, settings
    if not isinstance(data, str | os.PathLike):
        raise UsageError(
            f"data: cannot read a value of type {type(data).__name__}; hand over the name of a dataset, a path, {FORMS}"
        )
    return None, os.fspath(data), settings


def _loaded(rows: Rows | None, config: Config) -> tuple[FederatedData | None, InMemory | None]:
    """Return the rows as a run takes them, and what its folder keeps about them."""
    if rows is None:
        return None, None
    if isinstance(rows, Federation):
        return federate_ready(rows), InMemory()
    federated = rows.federate(config)
    return federated, InMemory(rows.declaration, rows.index())


def _again(folder: RunFolder, data: Any, further: Mapping[str, Any], config: Config) -> FederatedData:
    if isinstance(data, Federation):
        return federate_ready(data)
    declaration = replace(read_declaration(folder.path / FILE), folder=Path(), in_memory=True)
    return read_again(declaration, data, further).federate(config)


def _guessed(rows: Rows | None) -> tuple[str, ...]:
    return rows.guessed if isinstance(rows, MemoryData) else ()


def _path(value: Any, argument: str) -> Path:
    _refuse_other(value, argument, (str, os.PathLike), "a path")
    return Path(value)


def _refuse_other(value: Any, argument: str, kinds: Any, expected: str) -> None:
    if not isinstance(value, kinds):
        raise UsageError(f"{argument}: expected {expected}; got a value of type {type(value).__name__}")
