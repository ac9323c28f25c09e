"""The part of a kind of labels that describes them to people, and writes them to a label file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from imperfed.core.labels.counts import ClassCounts

SEPARATOR = "|"
"""Separates the names of several classes in the tables that are written."""


class DescribedLabels(ABC):
    """How labels of a kind are described and written."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def mentions(self) -> Tensor | None:
        """Return which classes each row names, bool [n, C]; None where each row names exactly one."""

    caption: ClassVar[str] = "rows of the class"
    """What `tally` counts."""
    legend: ClassVar[tuple[str, str, str]] = ("known to be present", "known to be absent", "not known")
    """What it means for this kind that a class counts as positive, negative or unknown."""

    @classmethod
    def tally(cls, positive: int, negative: int, unknown: int) -> str:
        """Return what the census shows for one class at one site."""
        return str(positive or "")

    @classmethod
    def naming(cls, counts: ClassCounts) -> Tensor:
        """Return the number of rows that name each class."""
        return counts.positive

    @classmethod
    def held(cls, counts: ClassCounts) -> Tensor:
        """Return the classes about which a site with these counts has information: bool [C]."""
        return counts.weight > 0

    @classmethod
    def caution(cls, counts: ClassCounts) -> str:
        """Return a warning about how such labels may be misread; empty where there is none."""
        return ""

    def written(self, classes: Sequence[str]) -> list[str]:
        """Return the label of every row in words."""
        mentions = self.mentions()
        assert mentions is not None
        return [SEPARATOR.join(classes[c] for c, named in enumerate(row) if named) for row in mentions.tolist()]

    def reasons(self) -> list[str]:
        """Return why a class was suggested for every row, in words."""
        return ["the most probable class"] * len(self)

    def label_table(
        self, ids: Sequence[str], classes: Sequence[str], belief: Tensor, learned: Tensor | None
    ) -> dict[str, list[Any]]:
        """Return the columns of a site's label file: one line per row, with one suggested class.

        `belief`: the probability of each class for each row. `learned`: the classes that any site annotates, bool [C];
        None: all of them.
        """
        confidence, suggested = belief.max(1)
        return {
            "id": list(ids),
            "given": self.written(classes),
            "suggested": [classes[c] for c in suggested.tolist()],
            "confidence": confidence.tolist(),
            "reason": self.reasons(),
        }

    @classmethod
    def predicted(cls, probability: Tensor, classes: Sequence[str]) -> list[str]:
        """Return the prediction for every row, in words."""
        return [classes[c] for c in probability.argmax(1).tolist()]
