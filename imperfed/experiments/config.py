"""The settings of an experiment, resolved: typed fields in sections."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import tomli_w

from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Attack, Defence, Repair
from imperfed.core.loading import import_path
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.data.generator import DataGenerator
from imperfed.data.labelling import LabelConfig
from imperfed.data.split import SplitConfig
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.fairness import Fairness
from imperfed.experiments.setting_sections import GENERATORS, is_generator, options
from imperfed.experiments.values import gpus_of
from imperfed.models import ModelSpec

AUTO = "auto"
"""The name under which methods and settings are searched for; it is no method itself."""
Precision = Literal["auto", "float32", "tf32", "bf16"]
Scalar = str | int | float | bool | tuple[int, ...]
NONE = "none"
"""The name that chooses no part at all, where leaving the setting out would leave the choice to `auto`."""


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


def settings_of(part: Any) -> dict[str, Scalar]:
    """Return the settings of a part; a generator is given by its name."""
    values = {key: getattr(part, key) for key in options(type(part))}
    return {key: _name_of(value) if is_generator(type(value)) else value for key, value in values.items()}


def _name_of(generator: DataGenerator) -> str:
    """Return the name that chooses a generator: its import path where no catalogue has it."""
    kind = type(generator)
    known = any(choice.known().get(kind.name) is kind for choice in GENERATORS.values())
    return kind.name if known else import_path(kind)


def _prefixed(part: Any, section: str) -> dict[str, Scalar]:
    return {f"{section}.{key}": value for key, value in settings_of(part).items()}
