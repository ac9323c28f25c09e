"""The plan of a comparison, in its folder, so that an interrupted one can be continued as a whole."""

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
from imperfed.data.files.memory import IN_MEMORY
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import anywhere
from imperfed.experiments.watch import Interrupted

FILE = "comparison.json"


@dataclass(frozen=True)
class ComparisonPlan:
    """What a comparison runs, as plain values."""

    methods: tuple[str, ...]
    """As they were named, with their settings."""
    seeds: tuple[int, ...]
    runs: tuple[tuple[str, ...], ...]
    """The settings of every run as the text of its config.toml, by seed and method."""
    paper: Mapping[str, float]
    alone: bool
    """Whether models that sites fit alone are measured beside the methods."""
    repeatable: bool
    """Whether the runs can be made again from their settings: rows that were handed over in memory are not stored."""

    @classmethod
    def of(
        cls,
        methods: Sequence[str],
        seeds: Sequence[int],
        configs: Sequence[Sequence[Config]],
        paper: Mapping[str, float],
        alone: bool,
    ) -> ComparisonPlan:
        """Return the plan of a comparison that is about to begin."""
        texts = tuple(tuple(anywhere(config).toml() for config in of_seed) for of_seed in configs)
        repeatable = configs[0][0].run.data != IN_MEMORY
        return cls(tuple(methods), tuple(seeds), texts, dict(paper), alone, repeatable)

    @classmethod
    def read(cls, folder: Path) -> ComparisonPlan:
        """Return the plan of a comparison that was begun in this folder."""
        path = folder / FILE
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            runs = tuple(map(tuple, values.pop("runs")))
            return cls(tuple(values.pop("methods")), tuple(values.pop("seeds")), runs, **values)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cut short or damaged ({error}); compare again") from error

    def configs(self) -> list[list[Config]]:
        """Return the settings of every run, by seed and method."""
        return [[resolve(tomllib.loads(text)) for text in of_seed] for of_seed in self.runs]

    @contextmanager
    def noted(self, folder: Path) -> Iterator[None]:
        """Keep the plan in the folder while its runs go on; an interruption says how to continue all of them.

        Where no run has begun, nothing is left.
        """
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        if self.repeatable:
            write_whole(folder / FILE, lambda partly: partly.write_text(json.dumps(asdict(self), indent=2)))
        try:
            yield
        except (Interrupted, RankLostError, DiskFullError) as error:
            if not self.repeatable:
                raise
            first, _, _ = str(error).partition("; ")
            remedy = "make room, then continue" if isinstance(error, DiskFullError) else "continue"
            raise type(error)(f"{first}; {remedy} the whole comparison with: imperfed resume {folder}") from error
        except ImperfedError:
            drop_bare_plan(folder / FILE, new)
            raise


def drop_bare_plan(plan: Path, new: Sequence[Path]) -> None:
    """Remove a plan that is all its folder holds; `new`: the folders made for it, the innermost first."""
    if plan.parent.is_dir() and [*plan.parent.iterdir()] == [plan]:
        plan.unlink()
        for folder in new:
            folder.rmdir()
