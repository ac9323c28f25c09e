"""The runs of a study: column by column and seed by seed; what has ended is kept, so a second call goes on."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError, unknown
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import Outcome, ParallelRuns, run_of
from imperfed.experiments.public_inputs import without_unused_public
from imperfed.experiments.reproduction.drawing import draw
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest
from imperfed.experiments.reproduction.study_table import markdown
from imperfed.experiments.study import Study, StudyColumn, StudyRow
from imperfed.experiments.tuning import Choices, Tuning, scored, words
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.folder import RunFolder

RESULTS, TABLE, DRAWING = "results.json", "table.md", "figure.svg"
MakeConfig = Callable[[dict[str, Any]], Callable[[str, int], Config]]


def chosen(study: Study, only: Sequence[str]) -> tuple[StudyColumn, ...]:
    """Return the selected columns of a study, refusing what cannot be run."""
    if study.program:
        raise UsageError(f"{study.name} is made by a program of its own: {study.program}")
    columns = tuple(map(study.column, only)) or study.runnable
    for column in columns:
        if why := study.no_data or column.no_data:
            raise UsageError(f"{study.name}, {column.name}: there are no data; {why}")
    if not columns:
        raise UsageError(f"{study.name}: there are no data; {study.no_data or study.columns[0].no_data}")
    return columns


def chosen_rows(study: Study, names: Sequence[str]) -> tuple[StudyRow, ...]:
    """Return the rows of a study that are named; all of them where none is."""
    by_name = {row.name: row for row in study.rows}
    if missing := [name for name in names if name not in by_name]:
        raise unknown(f"row of {study.name}", missing[0], by_name)
    return tuple(by_name[name] for name in names) or study.rows


@dataclass(frozen=True)
class SeedRuns:
    """The runs of one column with one seed, which one process makes on the same data."""

    column: StudyColumn
    seed: int
    rows: Sequence[StudyRow]
    configs: Sequence[Config]
    choices: Mapping[str, Mapping[str, Any]]
    """The settings chosen for every row; none if rows run as the study says."""


@dataclass
class StudyRuns:
    """The runs of some columns of a study in a folder."""

    study: Study
    columns: Sequence[StudyColumn]
    seeds: Sequence[int]
    words: Mapping[str, Any]
    """Settings that override the study's."""
    config: MakeConfig
    out: Path
    watch: Callable[[], Watch]
    tuning: Tuning | None = None
    """How every row is tuned before it runs; None: rows run as the study says."""
    rows: Sequence[StudyRow] = ()
    """The rows that run; empty: all."""

    @property
    def folder(self) -> Path:
        """Where runs, results, table and drawing are; a second call goes on there."""
        return self.out / "reproduce" / self.study.name

    def carry_out(self, jobs: int) -> StudyCells:
        """Make the runs that are missing, and write all results after every seed."""
        if not self.seeds:
            raise UsageError("no seed was named")
        cells = StudyCells.read(self.study.name, self.folder / RESULTS)
        try:
            with ParallelRuns(jobs) as processes:
                chosen = self._tuned(processes)
                # All settings are checked before any run, and processes that are done with a column begin the next.
                groups = [group for c in self.columns for group in self._groups(c, chosen.get(c.name, {}), cells)]
                outcomes = processes.outcomes([group.configs for group in groups], self.folder / "runs", self.watch)
                for group, ended in zip(groups, outcomes, strict=True):
                    made = [self._cell(group, *one) for one in zip(group.rows, group.configs, ended, strict=True)]
                    cells = self._with_distances(cells.with_all(made), group.column, group.seed)
                    self._write(cells)
        except (Interrupted, RankLostError) as error:
            first, _, _ = str(error).partition(";")
            raise type(error)(f"{first}; the same command goes on where it was, in {self.folder}") from error
        self._write(cells)
        return cells

    def _groups(
        self, column: StudyColumn, choices: Mapping[str, Mapping[str, Any]], cells: StudyCells
    ) -> Iterator[SeedRuns]:
        """Yield the runs of one column that are missing, seed by seed."""
        make = self._make(column)
        methods = {
            row: " ".join([self.study.method(row, column), *words(choices.get(row.name, {}))])
            for row in self.study.rows
        }
        for seed in self.seeds:
            if rows := self._missing(column, cells, seed):
                yield SeedRuns(column, seed, rows, self._configs(make, methods, seed, rows), choices)

    def _configs(
        self, make: Callable[[str, int], Config], methods: Mapping[StudyRow, str], seed: int, rows: Sequence[StudyRow]
    ) -> list[Config]:
        """Return the settings of some rows; which inputs are public depends on all of them."""
        every = without_unused_public([make(method, seed) for method in methods.values()])
        return [config for row, config in zip(methods, every, strict=True) if row in rows]

    def _missing(self, column: StudyColumn, cells: StudyCells, seed: int) -> list[StudyRow]:
        """Return the rows that have no result with this seed."""
        tuned = self.tuning is not None
        have = {row: cells.of(self.study, row, column, self.words, tuned) for row in self.study.rows}
        return [row for row in self.rows or self.study.rows if all(cell.seed != seed for cell in have[row])]

    def _make(self, column: StudyColumn) -> Callable[[str, int], Config]:
        """Return what makes the settings of a column's runs."""
        return self.config({**self.study.words(column), **self.words})

    def _tuned(self, processes: ParallelRuns) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Return the settings chosen for every row of every column, after the trials that are missing."""
        if self.tuning is None:
            return {}
        searches = {}
        for column in self.columns:
            choices = Choices(self.folder / "tuning" / f"{column.name.replace('/', '-')}.json", self.tuning)
            methods = {row.name: self.study.method(row, column) for row in self.rows or self.study.rows}
            searches[column.name] = choices, list(choices.trials(methods, self._make(column)))
        todo = [(choices, trial) for choices, trials in searches.values() for trial in choices.missing(trials)]
        trials, folder = [trial for _, trial in todo], self.folder / "runs"
        for place, score in scored(trials, self.tuning, processes, folder, self.watch()):
            choices, trial = todo[place]
            choices.keep(trial, score)
        return {name: choices.best(trials) for name, (choices, trials) in searches.items()}

    def _cell(self, group: SeedRuns, row: StudyRow, config: Config, outcome: Outcome) -> StudyCell:
        """Return what is kept of a run."""
        tuned = None if self.tuning is None else dict(group.choices.get(row.name, {}))
        made = digest(self.study, row, group.column, self.words)
        cell = StudyCell(row.name, group.column.name, group.seed, made, tuned=tuned)
        if isinstance(outcome, str):
            return replace(cell, diverged=outcome)
        run = run_of(config, self.folder / "runs")
        assert run is not None  # it has ended
        figures = {name: measure(name).of(outcome, run) for name in self.study.measures}
        curve = leading_curve(run, outcome.metric) if self.study.draw == "curves" else ()
        return replace(cell, figures=figures, curve=curve, seconds=outcome.seconds)

    def _with_distances(self, cells: StudyCells, column: StudyColumn, seed: int) -> StudyCells:
        """Return the cells of one seed, in which measures of distance are those from the reference run."""
        names = [name for name in self.study.measures if measure(name).from_reference]
        of_row = {row.name: self._of_seed(cells, row, column, seed) for row in self.study.rows}
        reference = of_row.get(self.study.reference)
        if not names or reference is None:
            return cells
        moved = []
        for cell in (cell for cell in of_row.values() if cell is not None):
            base = {name: reference.figures.get(name.removeprefix("delta ")) for name in names}
            own = {name: cell.figures.get(name.removeprefix("delta ")) for name in names}
            distances = {name: _distance(own[name], base[name]) for name in names}
            moved.append(replace(cell, figures={**cell.figures, **distances}))
        return cells.with_all(moved)

    def _of_seed(self, cells: StudyCells, row: StudyRow, column: StudyColumn, seed: int) -> StudyCell | None:
        found = cells.of(self.study, row, column, self.words, self.tuning is not None)
        return next((cell for cell in found if cell.seed == seed), None)

    def markdown(self, cells: StudyCells) -> str:
        """Return the table of the selected columns."""
        return markdown(self.study, cells, self.columns, self.words)

    def _write(self, cells: StudyCells) -> None:
        """Write results, table and drawing."""
        cells.write(self.folder / RESULTS)
        text = self.markdown(cells) + "\n"
        write_whole(self.folder / TABLE, lambda path: path.write_text(text, encoding="utf-8"))
        draw(self.study, cells, self.columns, self.words, self.folder / DRAWING)


def _distance(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


def leading_curve(run: RunFolder, metric: str) -> list[list[float]]:
    """Return the leading figure after every evaluated round: the global model's where there is one, else over sites."""
    of_global: dict[int, float] = {}
    over_sites: dict[int, list[float]] = defaultdict(list)
    for record in run.records():
        if record["metric"] == f"test/global/{metric}":
            of_global[record["round"]] = record["value"]
        elif record["metric"] == f"test/personal/{metric}":
            over_sites[record["round"]].append(record["value"])
    means = {number: statistics.fmean(found) for number, found in over_sites.items()}
    return [[number, round(value, 5)] for number, value in sorted((of_global or means).items())]
