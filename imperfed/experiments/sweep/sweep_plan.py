"""The plan of a sweep, in its folder, so that an interrupted one can be continued."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError, DiskFullError, ImperfedError
from imperfed.experiments.comparison_plan import drop_bare_plan
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import anywhere
from imperfed.experiments.sweep.sweep_grid import Cell, cells_of
from imperfed.experiments.watch import Interrupted

PLAN = "sweep.json"


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep tries, as plain values."""

    method: str
    """As it was named, with settings that all trials share."""
    grid: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    runs: Sequence[Sequence[str]]
    """The settings of every trial as the text of its config.toml, by combination and seed."""

    @classmethod
    def of(
        cls, method: str, grid: Mapping[str, Sequence[str]], seeds: Sequence[int], configs: Sequence[Sequence[Config]]
    ) -> SweepPlan:
        """Return the plan of a sweep that is about to begin."""
        return cls(method, grid, seeds, [[anywhere(config).toml() for config in of_cell] for of_cell in configs])

    @classmethod
    def read(cls, folder: Path) -> SweepPlan:
        """Return the plan of a sweep that was begun in this folder."""
        path = folder / PLAN
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: cut short or damaged ({error}); sweep again") from error

    def write(self, folder: Path) -> None:
        """Write the plan into its folder."""
        write_whole(folder / PLAN, lambda path: path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8"))

    @contextmanager
    def noted(self, folder: Path) -> Iterator[None]:
        """Keep the plan in a new folder while its trials go on; where none could begin, nothing is left."""
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True)
        self.write(folder)
        try:
            yield
        except (Interrupted, DiskFullError):
            raise
        except ImperfedError:
            drop_bare_plan(folder / PLAN, new)
            raise

    @property
    def cells(self) -> list[Cell]:
        """Every combination of the grid."""
        return cells_of(self.grid)

    def configs(self) -> list[list[Config]]:
        """Return the settings of every trial, by combination and seed."""
        return [[resolve(tomllib.loads(text)) for text in of_cell] for of_cell in self.runs]
