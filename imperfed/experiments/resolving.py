"""Resolve the settings of an experiment: defaults, then a preset, a TOML file and `key=value` words."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from imperfed.algorithms import catalogue, objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError, unknown
from imperfed.core.objective import Objective
from imperfed.core.registry import Registry, find
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.annotations.listed import ListedAnnotation
from imperfed.data.generator import DataGenerator
from imperfed.evaluation.fairness import Fairness
from imperfed.experiments.config import AUTO, NONE, Config, RunConfig
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.presets import preset
from imperfed.experiments.setting_names import full_name, refuse_unknown
from imperfed.experiments.setting_sections import CHOSEN, FIXED, GENERATORS, options
from imperfed.experiments.values import typed


def resolve(
    file: Mapping[str, Any] | None = None, words: Mapping[str, Any] | None = None, objects: Objects = NO_OBJECTS
) -> Config:
    """Return the settings from a preset, a file's sections and `key=value` words, each overriding the one before.

    `objects`: parts that were handed over from Python, with settings that nothing overrides.
    """
    in_file, in_words = _lists_expanded(_flattened(file or {})), _lists_expanded(words or {})
    of_run = {key: in_words.pop(word) for key in options(RunConfig) for word in (key, f"run.{key}") if word in in_words}
    run = _run(_chosen("run", in_file) | of_run | _chosen("run", objects.names))
    method, objective = _method(run, objects)
    own = objective() if objective else method().objective
    schemas: dict[str, type[Any]] = {"run": RunConfig, "method": method, **FIXED}
    if own is not None:
        schemas["objective"] = type(own)
    parts_named = {part: name for part in CHOSEN if (name := getattr(run, part)) not in ("", NONE)}
    chosen = {part: _find(part, name, CHOSEN[part](), objects) for part, name in parts_named.items()}
    start = preset(run.data, run.method)
    before = _generators(start | in_file, objects)
    named = start | in_file | _naming_words(in_words, schemas | chosen)
    generators = _generators({**named, **objects.names}, objects)
    schemas |= chosen | generators
    replaced = {section for section in GENERATORS if generators[section] is not before[section]}
    in_file = {name: value for name, value in in_file.items() if name.partition(".")[0] not in replaced}
    flat = {f"run.{k}": v for k, v in dataclasses.asdict(run).items()} | _fitting(start, schemas) | in_file
    said = {full_name(word, schemas): (word, value) for word, value in in_words.items()}
    _refuse_settings_of_objects({name: word for name, (word, _) in said.items()}, objects)
    flat |= {name: value for name, (_, value) in said.items()} | {**objects.names, **objects.settings}
    flat |= _aims(flat, chosen)
    refuse_unknown(flat, schemas)
    parts = {name: _fill(schema, _chosen(name, flat), name) for name, schema in chosen.items()}
    if own is not None:
        own = _fill(type(own), _chosen("objective", flat), "objective")
    method_object = _fill(method, _chosen("method", flat) | {"objective": own}, "method")
    config = Config(run, method_object, **_records(flat, generators), **parts)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, handed_over=objects.model))


def _find(what: str, name: str, known: Registry[type[Any]], objects: Objects) -> type[Any]:
    """Return the class of this name, first of all one that was handed over."""
    return objects.classes.get(name) or find(what, name, known)


def _refuse_settings_of_objects(said: Mapping[str, str], objects: Objects) -> None:
    """Refuse settings, by full name and as they were said, of instances and models that were handed over."""
    for name, word in said.items():
        section, _, key = name.partition(".")
        if name in objects.settings:
            raise UsageError(
                f"{word}=...: a setting of the {section}, which is an object here; set {key} when making it"
            )
        if objects.model is not None and section == "model":
            raise UsageError(f"{word}=...: the model is an object here and takes no settings; leave it out")


def _flattened(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's settings as section.key."""
    flat: dict[str, Any] = {}
    for section, entries in file.items():
        if not isinstance(entries, Mapping):
            raise UsageError(f"{section!r} must be a section: write [{section}] with keys below it")
        flat |= {f"{section}.{key}": value for key, value in entries.items()}
    return flat


def _lists_expanded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `annotates = "a, b; b, c"` expanded: lists of classes are a pattern's parameter."""
    expanded: dict[str, Any] = {}
    for name, value in settings.items():
        if name in ("annotates", "labels.annotates") and isinstance(value, str) and value not in annotation_patterns():
            expanded |= {name: ListedAnnotation.name, "annotation.lists": value}
        else:
            expanded[name] = value
    return expanded


def _run(values: Mapping[str, Any]) -> RunConfig:
    """Return which run this is, with the objective of `method+objective` in its place."""
    run: RunConfig = _fill(RunConfig, values, "run")
    if "+" not in run.method:
        return run
    name, _, minimises = run.method.partition("+")
    if run.objective not in ("", minimises):
        raise UsageError(f"{run.method} names an objective, but setting run.objective names another: {run.objective}")
    return dataclasses.replace(run, method=name, objective=minimises)


def _naming_words(words: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Return the words that choose generators, as section.key; the other words depend on this choice."""
    keys = {choice.key for choice in GENERATORS.values()}
    return {full_name(word, schemas): value for word, value in words.items() if word.rpartition(".")[2] in keys}


def _generators(settings: Mapping[str, Any], objects: Objects) -> dict[str, type[DataGenerator]]:
    """Return the generator that the settings choose for each section of `GENERATORS`."""
    names = {
        section: typed(settings.get(choice.setting, choice.default()), str, choice.setting)
        for section, choice in GENERATORS.items()
    }
    return {
        section: _find(choice.what, names[section], choice.known(), objects) for section, choice in GENERATORS.items()
    }


def _records(flat: Mapping[str, Any], generators: Mapping[str, type[DataGenerator]]) -> dict[str, Any]:
    """Return the sections that every run has, with generators in place of their names."""
    naming = {choice.setting for choice in GENERATORS.values()}
    plain = {name: value for name, value in flat.items() if name not in naming}
    records = {name: _fill(schema, _chosen(name, plain), name) for name, schema in FIXED.items()}
    for section, choice in GENERATORS.items():
        generator = _fill(generators[section], _chosen(section, plain), section)
        records[choice.record] = dataclasses.replace(records[choice.record], **{choice.key: generator})
    return records


def _fitting(preset: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Return a preset without the settings of methods and generators other than those chosen."""
    fits = {}
    for name, value in preset.items():
        section, _, key = name.partition(".")
        if section not in ("method", *GENERATORS) or key in options(schemas[section]):
            fits[name] = value
    return fits


def _method(run: RunConfig, objects: Objects) -> tuple[type[Algorithm], type[Objective] | None]:
    """Return the algorithm and the objective chosen by name; an objective's name alone means plain averaging."""
    if run.method == AUTO:
        raise UsageError(
            "auto searches among methods and runs by itself, in one process: imperfed run auto --data ...; here, name "
            "a method, such as the one that the report of such a run names"
        )
    method = _find("algorithm", run.method, catalogue(), objects)
    objective = _find("objective", run.objective, objectives(), objects) if run.objective else None
    if issubclass(method, Algorithm):
        return method, objective
    if objective not in (None, method):
        raise UsageError(f"{run.method!r} is already an objective and takes no second one ({run.objective!r})")
    return typing.cast(type[Algorithm], catalogue()["fedavg"]), method


def _aims(flat: Mapping[str, Any], chosen: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Return the targets of an attack and a defence that have none: those for which fairness is measured."""
    return {
        f"{part}.{key}": flat[f"fairness.{key}"]
        for part, schema in chosen.items()
        for key in options(Fairness)
        if key in options(schema) and f"fairness.{key}" in flat and not flat.get(f"{part}.{key}")
    }


def _chosen(section: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}


def _fill(schema: type[Any], values: Mapping[str, Any], section: str) -> Any:
    kinds = options(schema)
    filled = {}
    for key, value in values.items():
        if key not in kinds and key != "objective":
            raise unknown(f"setting in [{section}]", key, kinds, "imperfed schema")
        filled[key] = typed(value, kinds[key], f"{section}.{key}") if key in kinds else value
    return schema(**filled)
