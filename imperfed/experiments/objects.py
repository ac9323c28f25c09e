"""Parts of a run that were handed over as Python objects, where settings would name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from imperfed.models.own import ModelObject


@dataclass(frozen=True)
class Objects:
    """What settings say about the parts that were handed over, and what they cannot say."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The settings that name them, such as `run.method`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that instances hold, as section.key."""
    classes: Mapping[str, type[Any]] = field(default_factory=dict)
    """Their classes by the names above, where a name is an import path."""
    model: ModelObject | None = None

    def __or__(self, other: Objects) -> Objects:
        """Return the parts of both."""
        return Objects(
            {**self.names, **other.names},
            {**self.settings, **other.settings},
            {**self.classes, **other.classes},
            other.model or self.model,
        )

    def beginning_with(self, initial: Mapping[str, Tensor] | None) -> Objects:
        """Return the objects for a run that has begun, with the initial weights of its model."""
        return self if self.model is None else replace(self, model=replace(self.model, initial=initial))


NO_OBJECTS = Objects()
