"""Settings of an experiment: typed fields in sections, from defaults, a preset, a TOML file and `key=value` words.

The schema is the dataclasses themselves: `method` and `objective` take the fields of whatever was chosen by name.
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

from imperfed import attacks, defences, repairs
from imperfed.algorithms import find, find_objective
from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Attack, Defence, Repair
from imperfed.core.errors import UsageError, unknown
from imperfed.core.objective import Objective
from imperfed.data.candidates import LabelConfig
from imperfed.data.partitions import SplitConfig
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.fairness import Fairness
from imperfed.experiments.presets import preset
from imperfed.experiments.values import typed
from imperfed.models import ModelSpec

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
CHOSEN: dict[str, Callable[[str], type[Any]]] = {
    "repair": repairs.find,
    "attack": attacks.find,
    "defence": defences.find,
}
"""Sections of what a run may have besides its method, and how each is found by name."""


@dataclass(frozen=True)
class RunConfig:
    """Which run this is."""

    method: str = "pfedpll"  # "fedavg+cc" picks the objective as well
    data: str = "digits"
    objective: str = ""  # empty: the method's own, or the reference objective of the labels' kind
    repair: str = ""  # of the labels, before training
    attack: str = ""
    defence: str = ""
    seed: int = 0  # initial weights, batches, who takes part
    data_seed: int = 0  # split and candidate sets
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    precision: Precision = "auto"  # of products on a GPU, where auto is tf32; weights are float32 in any case
    compile: bool = False  # torch.compile on a GPU: slow at the start (up to 40 s), pays on long runs of deep networks
    deterministic: bool = False  # the same seed, the same bits also of convolutions on a GPU, which take longer then

    @property
    def title(self) -> str:
        """What a run is called: its method, and its objective where one was chosen."""
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

    def flat(self) -> dict[str, Scalar]:
        """Every setting as section.key."""
        flat: dict[str, Scalar] = {}
        for section in (f.name for f in dataclasses.fields(self)):
            part = getattr(self, section)
            if part is not None:
                flat |= {f"{section}.{key}": getattr(part, key) for key in options(type(part))}
        if self.method.objective is not None:
            chosen = self.method.objective
            flat |= {f"objective.{key}": getattr(chosen, key) for key in options(type(chosen))}
        return flat

    def toml(self) -> str:
        """Return the resolved settings as a file that `imperfed run` takes."""
        sections: dict[str, dict[str, Scalar]] = {}
        for name, value in self.flat().items():
            section, _, key = name.partition(".")
            sections.setdefault(section, {})[key] = value
        return tomli_w.dumps(sections)

    def digest(self) -> str:
        """A short name for exactly these settings."""
        return hashlib.sha256(self.toml().encode()).hexdigest()[:6]


SCHEMAS: dict[type[Any], Mapping[str, Any]] = {}
"""The settings of dataclasses asked for before: finding out their types is slow."""


def options(schema: type[Any]) -> Mapping[str, Any]:
    """The settings of a dataclass and their types; an algorithm's objective is a section of its own."""
    if schema not in SCHEMAS:
        hints = typing.get_type_hints(schema)
        names = (f.name for f in dataclasses.fields(schema))
        SCHEMAS[schema] = {name: hints[name] for name in names if hints[name] != Objective | None}
    return SCHEMAS[schema]


def resolve(file: Mapping[str, Any] | None = None, words: Mapping[str, Any] | None = None) -> Config:
    """Settings from a file's sections and from `key=value` words, the words last."""
    given: dict[str, Any] = {}
    for section, entries in (file or {}).items():
        if not isinstance(entries, Mapping):
            raise UsageError(f"{section!r} must be a section: write [{section}] with keys below it")
        given |= {f"{section}.{key}": value for key, value in entries.items()}
    spoken = dict(words or {})
    said = {key: spoken.pop(word) for key in options(RunConfig) for word in (key, f"run.{key}") if word in spoken}
    run = _fill(RunConfig, _chosen("run", given) | said, "run")
    if "+" in run.method:
        name, _, minimises = run.method.partition("+")
        if run.objective not in ("", minimises):
            raise UsageError(f"{run.method} names an objective, and setting run.objective another: {run.objective}")
        run = dataclasses.replace(run, method=name, objective=minimises)
    method, objective = _method(run)
    own = objective() if objective else method().objective
    schemas: dict[str, type[Any]] = {"run": RunConfig, "method": method, **FIXED}
    if own is not None:
        schemas["objective"] = type(own)
    chosen = {part: find_part(getattr(run, part)) for part, find_part in CHOSEN.items() if getattr(run, part)}
    schemas |= chosen
    start = _fitting(preset(run.data, run.method), schemas)
    flat = {f"run.{k}": v for k, v in dataclasses.asdict(run).items()} | start | given
    flat |= {_full(word, schemas): value for word, value in spoken.items()}
    flat = _aims(flat, chosen) | flat
    _refuse_unknown(flat, schemas)
    parts = {name: _fill(schema, _chosen(name, flat), name) for name, schema in (FIXED | chosen).items()}
    if own is not None:
        own = _fill(type(own), _chosen("objective", flat), "objective")
    return Config(run, _fill(method, _chosen("method", flat) | {"objective": own}, "method"), **parts)


def read(path: Path) -> dict[str, Any]:
    """The sections of an experiment file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file ({error})") from error


def _fitting(preset: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> dict[str, Any]:
    """A preset without the settings of methods other than the one chosen."""
    own = {f"method.{key}" for key in options(schemas["method"])}
    return {name: value for name, value in preset.items() if name in own or not name.startswith("method.")}


def _method(run: RunConfig) -> tuple[type[Algorithm], type[Objective] | None]:
    """What was chosen by name; an objective's name alone means plain averaging."""
    method = find(run.method)
    objective = find_objective(run.objective) if run.objective else None
    if issubclass(method, Algorithm):
        return method, objective
    if objective not in (None, method):
        raise UsageError(f"{run.method!r} is an objective already and takes no second one ({run.objective!r})")
    return typing.cast(type[Algorithm], find("fedavg")), method


def _aims(flat: Mapping[str, Any], chosen: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Whom an attack wrongs and a defence guards where nothing else is said: those that fairness is measured of."""
    return {
        f"{part}.{key}": flat[f"fairness.{key}"]
        for part, schema in chosen.items()
        for key in options(Fairness)
        if key in options(schema) and f"fairness.{key}" in flat
    }


def _chosen(section: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}


def _full(word: str, schemas: Mapping[str, type[Any]]) -> str:
    """A key as section.key; the section may be left out where only one has such a key."""
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
    raise unknown("setting", word, {n.partition(".")[2] if "." not in word else n for n in known})


def _refuse_unknown(flat: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> None:
    for name in flat:
        section, _, key = name.partition(".")
        if section not in schemas:
            raise unknown("section", section, schemas)
        if key not in options(schemas[section]):
            raise unknown(f"setting in [{section}]", key, options(schemas[section]))


def _fill(schema: type[Any], values: Mapping[str, Any], section: str) -> Any:
    kinds = options(schema)
    filled = {}
    for key, value in values.items():
        if key not in kinds and key != "objective":
            raise unknown(f"setting in [{section}]", key, kinds)
        filled[key] = typed(value, kinds[key], f"{section}.{key}") if key in kinds else value
    return schema(**filled)
