"""From the words on the command line to settings: `key=value` assignments, lists of seeds, experiment files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.core.errors import UsageError

if TYPE_CHECKING:
    from imperfed.experiments.config import Config


def given(**values: object) -> dict[str, str]:
    """Return the values that are not None, as text."""
    return {key: str(value) for key, value in values.items() if value is not None}


def words_of(settings: Sequence[str], **options: str | int | None) -> dict[str, str]:
    """Return the settings given on the command line, by key: those of `--set`, and those that have options."""
    if (
        options.get("device") == "cpu"
    ):  # once torch has seen a GPU, a CPU run cannot fork workers (`engine/backends/task_pool.py`)
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return assigned(settings) | given(**options)


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return settings from `key=value` assignments."""
    words = {}
    for setting in assignments:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"a setting is written as key=value; got {setting!r}")
        words[key.strip()] = value.strip()
    return words


def config_of(what: str, words: dict[str, str]) -> Config:
    """Return the settings of a run from a method's name or an experiment file, and words."""
    from imperfed.experiments.resolving import resolve

    return resolve(*sources_of(what, words))


def sources_of(what: str, words: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the sections of an experiment file, if `what` is one, and the words, which name the method otherwise."""
    from imperfed.experiments.experiment_file import read

    path = Path(what)
    if path.suffix == ".toml" and path.name != "federation.toml":
        return read(path), words
    _refuse_data(path)
    return {}, {"method": what} | words


def _refuse_data(path: Path) -> None:
    """Refuse files and folders in the place of a method, unless a method has the same name."""
    from imperfed.algorithms import catalogue
    from imperfed.experiments.config import AUTO

    if path.exists() and str(path) not in (AUTO, *catalogue()):
        raise UsageError(f"{path}: data, and no method; hand it over with --data: imperfed run --data {path}")


def seed_numbers(seeds: str) -> list[int]:
    """Return the seeds of a comparison."""
    try:
        numbers = [int(s) for s in seeds.split(",")]
    except ValueError:
        raise UsageError(f"--seeds takes comma-separated whole numbers; got {seeds!r}") from None
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds names a seed twice, which would count one run twice; got {seeds!r}")
    return numbers


def configs(words: dict[str, Any]) -> Callable[[str, int], Config]:
    """Return a function from a method and a seed to the settings of that run of a comparison."""
    from imperfed.experiments.resolving import resolve

    for key in words:
        if key.removeprefix("run.") in ("method", "seed"):
            raise UsageError(f"{key} varies between the runs of a comparison and cannot be set for all of them")

    def config(method: str, seed: int) -> Config:
        name, *own = method.split()
        return resolve(words={"data_seed": seed} | words | assigned(own) | {"method": name, "seed": seed})

    return config
