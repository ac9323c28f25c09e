"""The sections of the settings and the fields of each.

Dataclasses themselves are the schema: sections such as `method`, `attack` and `partition` have the fields of the class
that was chosen by name.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from imperfed.attacks import attacks
from imperfed.core.objective import Objective
from imperfed.core.registry import Registry
from imperfed.data.corruption.annotations import annotation_patterns
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
from imperfed.models import ModelSpec
from imperfed.models.own import ModelObject
from imperfed.privacy import mechanisms
from imperfed.repairs import repairs

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
        SCHEMAS[schema] = {name: str if is_generator(kind) else kind for name, kind in kinds.items()}
    return SCHEMAS[schema]


def is_generator(kind: Any) -> bool:
    """Return whether a type is that of a data generator."""
    return isinstance(kind, type) and DataGenerator in kind.__mro__  # `issubclass` looks at every generator there is
