"""What is compared: the kinds of the benchmark, each a file with its datasets, its settings and its figures.

`docs/benchmark.md` describes the file. Methods are not in it: they are those of the catalogue (`members.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch

from imperfed.core.errors import UsageError, unknown
from imperfed.data.sources import sources
from imperfed.data.stored_files import data_folder
from imperfed.experiments.experiment_file import read
from imperfed.experiments.study import flat_settings

FOLDER = Path(str(resources.files("imperfed.benchmark")))
EXAMPLE = "example "
"""Data that begin with this are an example that comes with imperfed."""
NO_GPU = "needs a GPU, and there is none here"
HOURS = "takes hours without a GPU, and there is none here"


@dataclass(frozen=True)
class BenchmarkSet:
    """A dataset of the benchmark, with what its labels are like."""

    name: str
    labels: str
    """The kind of labels that its sites hold."""
    settings: Mapping[str, Any]
    about: str = ""
    gpu: str = ""
    """What takes too long without a GPU; empty: nothing."""
    hours: str = ""
    """What takes hours without a GPU; empty: nothing."""

    @property
    def data(self) -> str:
        """The dataset's name; that of an example after `example`."""
        return str(self.settings["data"])

    def left_out(self, has_gpu: bool) -> str:
        """Return why it is left out unless it is asked for by name; empty if it is not."""
        if missing := self.missing():
            return missing
        if has_gpu or not (self.gpu or self.hours):
            return ""
        return f"{NO_GPU} ({self.gpu})" if self.gpu else f"{HOURS} ({self.hours})"

    def missing(self) -> str:
        """Return which files are missing and where they were looked for; empty if all are there."""
        if self.data.startswith(EXAMPLE):
            return ""
        files = sources()[self.data].missing(data_folder())
        return f"no {' or '.join(files)} in {data_folder()} (IMPERFED_DATA)" if files else ""


@dataclass(frozen=True)
class BenchmarkKind:
    """One kind of imperfect labels, and how methods for it are compared."""

    name: str
    title: str
    labels: str
    figure: str
    """What methods are ranked by: a name of `reproduction.measures`."""
    datasets: tuple[BenchmarkSet, ...]
    settings: Mapping[str, Any]
    """Of every run."""
    figures: tuple[str, ...]
    best: Literal["high", "low"] = "high"
    members: Literal["methods", "defences"] = "methods"
    """What of the catalogue is compared."""
    methods: tuple[str, ...] = ()
    """Further methods that are compared, as they are written on the command line."""
    references: tuple[str, ...] = ()
    """What is measured beside them and not ranked, such as training on pooled rows."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Names of the catalogue that are not compared, and why."""
    about: str = ""

    def words(self, dataset: BenchmarkSet) -> dict[str, Any]:
        """Return the settings of all runs on a dataset; a model's width only where the dataset's model has one."""
        return {**self.settings, **dataset.settings}

    def dataset(self, name: str) -> BenchmarkSet:
        """Return a dataset by its name."""
        found = {one.name: one for one in self.datasets}
        if name not in found:
            raise unknown(f"dataset of the benchmark {self.name}", name, found)
        return found[name]

    def chosen(self, names: Sequence[str]) -> tuple[tuple[BenchmarkSet, ...], dict[str, str]]:
        """Return the datasets to run, and why others are left out; those that are named must be there."""
        if names:
            named = tuple(map(self.dataset, names))
            for one in named:
                if missing := one.missing():
                    raise UsageError(f"{self.name}, {one.name}: {missing}; it comes from {sources()[one.data].origin}")
            return named, {}
        why = {one.name: one.left_out(torch.cuda.is_available()) for one in self.datasets}
        return tuple(one for one in self.datasets if not why[one.name]), {
            name: text for name, text in why.items() if text
        }


@cache
def kinds() -> dict[str, BenchmarkKind]:
    """Return the kinds of the benchmark by name."""
    return {path.stem: _kind(path) for path in sorted((FOLDER / "definitions").glob("*.toml"))}


def kind_of(name: str) -> BenchmarkKind:
    """Return a kind by its name."""
    if name not in kinds():
        raise unknown("benchmark", name, kinds())
    return kinds()[name]


def results_file(name: str) -> Path:
    """Return where the results of a kind lie that come with imperfed."""
    return FOLDER / "results" / f"{name}.jsonl"


def _kind(path: Path) -> BenchmarkKind:
    """Return the kind that a file describes."""
    file: dict[str, Any] = read(path)
    own = {name: {"labels": file["labels"], **entries} for name, entries in file.pop("datasets").items()}
    file["datasets"] = tuple(
        BenchmarkSet(name, **{**entries, "settings": dict(flat_settings(entries["settings"]))})
        for name, entries in own.items()
    )
    file["settings"] = dict(flat_settings(file["settings"]))
    file["about"] = " ".join(file.get("about", "").split())
    file |= {key: tuple(file.get(key, ())) for key in ("figures", "methods", "references")}
    return BenchmarkKind(path.stem, **file)
