"""The catalogue as its classes describe it: the entries of every list, and the page of every entry."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from imperfed.algorithms import catalogue
from imperfed.attacks import attacks
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import KINDS
from imperfed.core.loading import load_class
from imperfed.core.objective import Objective
from imperfed.core.registry import Registry
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.candidates import candidate_generators
from imperfed.data.corruption.noise import noises
from imperfed.data.partitions import partitions
from imperfed.data.sources import sources
from imperfed.defences import defences
from imperfed.engine.local_training import Local
from imperfed.examples import examples
from imperfed.experiments.config import RunConfig, settings_of
from imperfed.experiments.descriptions import descriptions
from imperfed.experiments.resolving import resolve
from imperfed.experiments.setting_sections import FIXED, options
from imperfed.experiments.study import studies
from imperfed.models import models
from imperfed.privacy import mechanisms
from imperfed.repairs import repairs

Entry = dict[str, Any]
Method = type[Algorithm] | type[Objective]
Finder = Callable[[], Registry[Any]]


def learns_from(method: Method) -> str:
    """Return the kind of labels a method learns from."""
    own = method.labels if issubclass(method, Objective) else method().objective
    return "any kind" if own is None else own.kind if isinstance(own, type) else own.labels.kind


def about(method: type[Any]) -> str:
    """Return the first line of a method's docstring."""
    return inspect.cleandoc(method.__doc__ or "").split("\n")[0]


def algorithms() -> list[Entry]:
    """Return every method: algorithms, and objectives, which run under FedAvg or another algorithm."""
    return [
        {
            "name": name,
            "is": "objective" if issubclass(method, Objective) else "algorithm",
            "learns from": learns_from(method),
            "about": about(method),
        }
        for name, method in sorted(catalogue().items(), key=lambda item: issubclass(item[1], Objective))
    ]


def datasets() -> list[Entry]:
    """Return every built-in dataset: its files, where they come from, and in `needs` groups of which one must exist."""
    return [
        {
            "name": name,
            "about": source.title,
            "files": dict(source.files),
            "origin": source.origin,
            "needs": [[path] for path in source.files if path not in source.any_of]
            + ([list(source.any_of)] if source.any_of else []),
        }
        for name, source in sources().items()
    ]


def model_entries() -> list[Entry]:
    """Return every built-in model."""
    return [{"name": name, "takes": m.takes, "about": m.about} for name, m in models().items()]


def study_entries() -> list[Entry]:
    """Return every table and figure that `reproduce` knows."""
    return [
        {
            "name": name,
            "about": study.title,
            "in the paper": study.place,
            "columns": ", ".join(column.name for column in study.columns),
            "methods": ", ".join(row.method for row in study.rows),
            "differs": study.differs,
        }
        for name, study in studies().items()
    ]


def example_entries() -> list[Entry]:
    """Return every federation that `imperfed example` writes."""
    return [
        {"name": name, "labels": e.labels, "about": about(e), "made from": e.source} for name, e in examples().items()
    ]


def label_entries() -> list[Entry]:
    """Return every kind of labels."""
    return [{"name": name, "is": kind.title, "about": about(kind)} for name, kind in KINDS.items()]


def plain_entries(known: Finder) -> Callable[[], list[Entry]]:
    """Return a function that lists a catalogue: the name and the description of each entry."""
    return lambda: [{"name": name, "about": about(thing)} for name, thing in known().items()]


AROUND: dict[str, Finder] = {
    "repairs": repairs,
    "attacks": attacks,
    "defences": defences,
    "privacy": mechanisms,
    "partitions": partitions,
    "candidates": candidate_generators,
    "noise": noises,
    "annotations": annotation_patterns,
}
"""What combines with any method, and what generates the data it learns from."""
LISTS: dict[str, Callable[[], list[Entry]]] = {
    "algorithms": algorithms,
    **{what: plain_entries(known) for what, known in AROUND.items()},
    "labels": label_entries,
    "datasets": datasets,
    "examples": example_entries,
    "models": model_entries,
    "studies": study_entries,
}

REGISTRIES: dict[str, Callable[[], Registry[Any]]] = {
    "algorithms": catalogue,
    **AROUND,
    "datasets": sources,
    "examples": examples,
    "models": models,
}
"""The lists to which plug-ins add."""


def setting_names() -> dict[str, list[str]]:
    """Return the settings of a run of each method, as section.key; those of generators are of the default ones."""
    return {name: list(resolve(words={"method": name}).flat()) for name in catalogue()}


def unusable_plugins() -> dict[str, dict[str, str]]:
    """Return why plug-ins cannot be used, by the list that they would be in and by name."""
    return {what: dict(registry().refused) for what, registry in REGISTRIES.items()}


def pages() -> dict[str, dict[str, Entry]]:
    """Return every entry in full, by list and by name."""
    classes: dict[str, Finder] = {"algorithms": catalogue, **AROUND}
    others = {
        "datasets": datasets,
        "examples": example_entries,
        "models": model_entries,
        "studies": study_entries,
    }
    return {
        **{what: {name: class_page(name, kind) for name, kind in known().items()} for what, known in classes.items()},
        **{what: {entry["name"]: entry for entry in entries()} for what, entries in others.items()},
    }


def page_of_path(path: str) -> Entry:
    """Return the page of a class that is in no list, by its import path `package.module:Class`."""
    finders: list[Finder] = [catalogue, *AROUND.values()]
    kinds = {kind for known in finders for kind in known().kinds}
    return class_page(path, load_class("class", path, tuple(kinds)))


def class_page(name: str, thing: type[Any]) -> Entry:
    """Return a page: for a method, with the kind of labels it learns from and the settings that every run has."""
    page = method_entry(thing)
    if issubclass(thing, Algorithm | Objective):
        page |= {
            "learns from": learns_from(thing),
            "training recipe": "\n".join(recipe_lines(thing)),
            "settings of every run": "\n".join(run_settings(name)),
        }
    return page


def method_entry(method: type[Any]) -> Entry:
    """Return a method's entry: the symbol table of its file, its settings, and where its source is."""
    module = sys.modules[method.__module__]
    package = sys.modules[module.__package__ or module.__name__]
    if getattr(package, method.__name__, None) is method:  # a paper in several modules
        module = package
    path = Path(inspect.getfile(method))
    return {
        "name": method.name,
        "about": about(method),
        "paper and symbols": inspect.cleandoc(module.__doc__ or ""),
        "settings": "\n".join(settings(method)) or "none",
        "source": str(path),
    }


def settings(method: type[Any]) -> list[str]:
    """Return one line per setting: its default, other choices, what it means; those of the objective come last."""
    return [*_lines(method(), ""), *_lines(getattr(method(), "objective", None), "objective.")]


def recipe_lines(method: Method) -> list[str]:
    """Return what a method, with its default settings, decides itself of how the sites train."""
    fixed = {} if issubclass(method, Objective) else method().fixed_recipe
    own = [f"local.{part} stays {getattr(Local(), part)!r}: {reason}" for part, reason in fixed.items()]
    return own or ["any local.optimizer, local.schedule, local.clip and local.augment"]


def run_settings(method: str) -> list[str]:
    """Return one line per setting that every run has, whatever its method."""
    parts = {"run": RunConfig(method=method)} | {section: schema() for section, schema in FIXED.items()}
    return [line for section, part in parts.items() for line in _lines(part, f"{section}.")]


def _lines(part: Any, prefix: str) -> Iterator[str]:
    if part is None:
        return
    meaning, values = descriptions(type(part)), settings_of(part)
    for key, kind in options(type(part)).items():
        default = values[key]
        others = [repr(c) for c in get_args(kind) if c != default] if get_origin(kind) is Literal else []
        choices = f" (or {', '.join(others)})" if others else ""
        comment = f"    # {meaning[key]}" if key in meaning else ""
        yield f"{prefix}{key} = {default!r}{choices}{comment}"
