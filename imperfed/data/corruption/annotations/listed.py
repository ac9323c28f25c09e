"""The classes that each site annotates, listed by name."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError
from imperfed.data.corruption.annotations.base import MaskedAnnotation, Masks


@dataclass(frozen=True)
class ClassLists(MaskedAnnotation):
    """A pattern that lists by name the classes that each site annotates."""

    @abstractmethod
    def text(self) -> str:
        """Return the classes of each site, separated by commas, with semicolons between sites."""

    def classes_of_sites(self) -> list[list[str]]:
        """Return the classes that each site annotates."""
        sites = [[name.strip() for name in site.split(",") if name.strip()] for site in self.text().split(";")]
        if not all(sites):
            raise UsageError(f"annotates = {self.title!r}: every site must annotate at least one class")
        return sites

    def named_classes(self) -> tuple[str, ...]:
        return tuple(name for site in self.classes_of_sites() for name in site)

    def masks(self, classes: tuple[str, ...], sites: int, generator: np.random.Generator) -> Masks:
        listed = self.classes_of_sites()
        if len(listed) != sites:
            raise UsageError(
                f"annotates = {self.title!r} lists classes for {len(listed)} sites, but there are {sites}; set sites, "
                "or separate the sites' classes with semicolons"
            )
        return np.array([[name in site for name in classes] for site in listed])


@dataclass(frozen=True)
class ListedAnnotation(ClassLists):
    """Each site annotates the classes listed for it; `annotates = "a, b; b, c"` is shorthand for such lists."""

    name: ClassVar[str] = "listed"
    lists: str = ""  # classes separated by commas, sites by semicolons: "a, b; b, c"

    @property
    def title(self) -> str:
        return self.lists

    def text(self) -> str:
        return self.lists
