"""Settings of an experiment: typed fields in sections, from defaults, a preset, a TOML file and `key=value` words.

The dataclasses themselves are the schema: sections such as `method`, `attack` and `partition` have the fields of the
class that was chosen by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tomllib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from imperfed.algorithms import catalogue, objectives
from imperfed.attacks import attacks
from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Attack, Defence, Repair
from imperfed.core.errors import UsageError, unknown
from imperfed.core.loading import import_path
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.objective import Objective
from imperfed.core.registry import Registry, find
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.annotations.listed import ListedAnnotation
from imperfed.data.corruption.candidates import candidate_generators
from imperfed.data.corruption.noise import noises
from imperfed.data.generator import DataGenerator
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions import partitions
from imperfed.data.split import SplitConfig
from imperfed.defences import defences
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.fairness import Fairness
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.presets import preset
from imperfed.experiments.values import gpus_of, typed
from imperfed.models import ModelSpec
from imperfed.models.own import ModelObject
from imperfed.privacy import mechanisms
from imperfed.repairs import repairs

AUTO = "auto"
"""The name under which methods and settings are searched for; it is no method itself."""
Precision = Literal["auto", "float32", "tf32", "bf16"]
Scalar = str | int | float | bool | tuple[int, ...]
FIXED: dict[str, type[Any]] = {
    "split": SplitConfig,
    "labels": LabelConfig,
    "model": ModelSpec,
    "local": Local,
    "rounds": Rounds,
    "fairness": Fairness,
}
Catalogue = Callable[[], Registry[type[Any]]]
CHOSEN: dict[str, Catalogue] = {"repair": repairs, "attack": attacks, "defence": defences, "privacy": mechanisms}
"""The optional parts of a run besides its method, each chosen by the setting of the same name in `run`."""
NONE = "none"
"""The name that chooses no part at all, where leaving the setting out would leave the choice to `auto`."""


@dataclass(frozen=True)
class Choice:
    """How a data generator is chosen by name."""

    record: str
    key: str
    """The setting that names it, `record.key`; the generator itself is that field of the record."""
    what: str
    """What such a generator is called in messages."""
    known: Catalogue

    @property
    def setting(self) -> str:
        """The full name of the setting that chooses the generator."""
        return f"{self.record}.{self.key}"

    def default(self) -> str:
        """Return the name of the default generator."""
        return str(getattr(FIXED[self.record](), self.key).name)

    def holders(self, key: str) -> list[str]:
        """Return the names of the generators that have a setting of this name."""
        return [name for name, generator in self.known().items() if key in options(generator)]


GENERATORS: dict[str, Choice] = {
    "partition": Choice("split", "partition", "partition", partitions),
    "candidates": Choice("labels", "candidates", "kind of candidate sets", candidate_generators),
    "noise": Choice("labels", "noise", "noise", noises),
    "annotation": Choice("labels", "annotates", "annotation pattern", annotation_patterns),
}
"""The sections that say how the data are generated, and how each generator is chosen."""


@dataclass(frozen=True)
class RunConfig:
    """Which run this is."""

    method: str = "pfedpll"  # "fedavg+cc" picks the objective as well
    data: str = "digits"
    objective: str = ""  # empty: the method's own, or the reference objective of the labels' kind
    repair: str = ""  # a repair of the labels, before training; none: not even where `auto` would make one
    attack: str = ""
    defence: str = ""
    privacy: str = ""  # what sites do to the weights that they send, such as clipping and noise
    seed: int = 0  # of initial weights, batches and the sampling of sites
    data_seed: int = 0  # of the split and the candidate sets
    lazy: bool = False  # own files: read images and Parquet rows when a batch needs them, as if declared lazy
    device: str = "auto"  # cpu, cuda, a GPU such as cuda:1, several such as cuda:0,1; auto: a GPU if there is one
    precision: Precision = "auto"  # of matrix products on a GPU, where auto is tf32; weights are always float32
    compile: bool = False  # torch.compile on a GPU: slow to start (up to 40 s), pays off in long runs of deep networks
    deterministic: bool = False  # same seed, same bits, also for convolutions on a GPU, which are then slower
    track: Literal["none", "tensorboard", "mlflow"] = "none"  # a tool for which the metrics are written as well

    def __post_init__(self) -> None:
        gpus_of(self.device)

    @property
    def title(self) -> str:
        """The name of a run: its method, and its objective where one was chosen."""
        return f"{self.method}+{self.objective}" if self.objective else self.method


@dataclass(frozen=True)
class Config:
    """All settings of one experiment, resolved."""

    run: RunConfig
    method: Algorithm
    split: SplitConfig
    labels: LabelConfig
    model: ModelSpec
    local: Local
    rounds: Rounds
    fairness: Fairness
    repair: Repair | None = None
    attack: Attack | None = None
    defence: Defence | None = None
    privacy: PrivacyMechanism | None = None

    def flat(self) -> dict[str, Scalar]:
        """Return every setting as section.key."""
        flat: dict[str, Scalar] = {}
        for section in (f.name for f in dataclasses.fields(self)):
            part = getattr(self, section)
            if part is not None:
                flat |= _prefixed(part, section)
        for section, generator in self.generators().items():
            flat |= _prefixed(generator, section)
        if self.method.objective is not None:
            flat |= _prefixed(self.method.objective, "objective")
        return flat

    def generators(self) -> dict[str, DataGenerator]:
        """Return the data generators, by section."""
        return {section: getattr(getattr(self, choice.record), choice.key) for section, choice in GENERATORS.items()}

    def toml(self) -> str:
        """Return the resolved settings as a file that `imperfed run` accepts."""
        sections: dict[str, dict[str, Scalar]] = {}
        for name, value in self.flat().items():
            section, _, key = name.partition(".")
            sections.setdefault(section, {})[key] = value
        return tomli_w.dumps(sections)

    def digest(self) -> str:
        """Return a short name for exactly these settings."""
        return hashlib.sha256(self.toml().encode()).hexdigest()[:6]


SCHEMAS: dict[type[Any], Mapping[str, Any]] = {}
"""A cache of the settings of dataclasses: resolving their types is slow."""


def options(schema: type[Any]) -> Mapping[str, Any]:
    """Return the settings of a dataclass and their types.

    Fields with their own section are left out (an algorithm's objective) or are names (a data generator), and so is
    the field that holds a model handed over as an object.
    """
    if schema not in SCHEMAS:
        hints = typing.get_type_hints(schema)
        apart = (Objective | None, ModelObject | None)
        kinds = {f.name: hints[f.name] for f in dataclasses.fields(schema) if hints[f.name] not in apart}
        SCHEMAS[schema] = {name: str if _is_generator(kind) else kind for name, kind in kinds.items()}
    return SCHEMAS[schema]


def _is_generator(kind: Any) -> bool:
    return isinstance(kind, type) and DataGenerator in kind.__mro__  # `issubclass` looks at every generator there is


def settings_of(part: Any) -> dict[str, Scalar]:
    """Return the settings of a part; a generator is given by its name."""
    values = {key: getattr(part, key) for key in options(type(part))}
    return {key: _name_of(value) if _is_generator(type(value)) else value for key, value in values.items()}


def _name_of(generator: DataGenerator) -> str:
    """Return the name that chooses a generator: its import path where no catalogue has it."""
    kind = type(generator)
    known = any(choice.known().get(kind.name) is kind for choice in GENERATORS.values())
    return kind.name if known else import_path(kind)


def _prefixed(part: Any, section: str) -> dict[str, Scalar]:
    return {f"{section}.{key}": value for key, value in settings_of(part).items()}


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
    said = {_full(word, schemas): (word, value) for word, value in in_words.items()}
    _refuse_settings_of_objects({name: word for name, (word, _) in said.items()}, objects)
    flat |= {name: value for name, (_, value) in said.items()} | {**objects.names, **objects.settings}
    flat |= _aims(flat, chosen)
    _refuse_unknown(flat, schemas)
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
    return {_full(word, schemas): value for word, value in words.items() if word.rpartition(".")[2] in keys}


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


def read(path: Path) -> dict[str, Any]:
    """Return the sections of an experiment file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file ({error})") from error


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


def _full(word: str, schemas: Mapping[str, type[Any]]) -> str:
    """Return a key as section.key; the section may be omitted where only one has such a key."""
    if word == "model":
        return "model.name"
    known = [f"{section}.{key}" for section, schema in schemas.items() for key in options(schema)]
    if word in known:
        return word
    matches = [name for name in known if name.partition(".")[2] == word]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"setting {word!r} could be {' or '.join(matches)}: say which")
    _refuse_of_another_generator(word, schemas)
    keys = {name.partition(".")[2] if "." not in word else name for name in known}
    raise unknown("setting", word, keys, _listed_by(schemas))


def _listed_by(schemas: Mapping[str, type[Any]]) -> str:
    """Return the command that lists the settings of every run, of the method, and of an objective chosen for it."""
    method, objective = schemas["method"], schemas.get("objective")
    if objective is None or type(method().objective) is objective:
        return f"imperfed show {method.name}"
    return f"imperfed show {method.name} and imperfed show {objective.name}"


def _refuse_of_another_generator(word: str, schemas: Mapping[str, type[Any]]) -> None:
    """Refuse a setting of a generator that was not chosen, and say which generator has it."""
    for section, choice in GENERATORS.items():
        if holders := choice.holders(word.removeprefix(f"{section}.")):
            raise UsageError(
                f"setting {word!r} belongs to {choice.key} = {' or '.join(holders)}, but {choice.key} is "
                f"{schemas[section].name} here: choose it, or leave the setting out"
            )


def _refuse_unknown(flat: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> None:
    for name in flat:
        section, _, key = name.partition(".")
        if section not in schemas:
            raise unknown("section", section, schemas)
        if key not in options(schemas[section]):
            _refuse_of_another_generator(name, schemas)
            command = f"imperfed show {schemas[section].name}" if section in CHOSEN else _listed_by(schemas)
            raise unknown(f"setting in [{section}]", key, options(schemas[section]), command)


def _fill(schema: type[Any], values: Mapping[str, Any], section: str) -> Any:
    kinds = options(schema)
    filled = {}
    for key, value in values.items():
        if key not in kinds and key != "objective":
            raise unknown(f"setting in [{section}]", key, kinds, "imperfed schema")
        filled[key] = typed(value, kinds[key], f"{section}.{key}") if key in kinds else value
    return schema(**filled)
