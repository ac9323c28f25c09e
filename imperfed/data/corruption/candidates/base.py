"""The base classes of candidate-set generators: rules by which wrong classes join the true class of a row."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from imperfed.core.errors import DataError
from imperfed.core.labels import Candidates
from imperfed.data.dataset import Dataset
from imperfed.data.generator import DataGenerator, Index

Sets = npt.NDArray[np.bool_]
"""One candidate set per row, [rows, classes]."""
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class CandidateGenerator(DataGenerator):
    """A way to obtain candidate sets."""

    @abstractmethod
    def generate(
        self, dataset: Dataset, data_seed: int, generator: np.random.Generator
    ) -> tuple[Candidates, dict[str, Any]]:
        """Return the candidate sets of all rows of the dataset, and further facts about them for the record."""


@dataclass(frozen=True)
class ClassSets(CandidateGenerator):
    """A generator whose sets depend on the true class of a row alone."""

    def generate(
        self, dataset: Dataset, data_seed: int, generator: np.random.Generator
    ) -> tuple[Candidates, dict[str, Any]]:
        classes = len(dataset.classes)
        sets = self.draw(true_classes(dataset), classes, generator)
        return Candidates(torch.from_numpy(sets), classes), {}

    @abstractmethod
    def draw(self, y: Index, classes: int, generator: np.random.Generator) -> Sets:
        """Return one set per row, with the true class of each row in its set."""


def true_classes(dataset: Dataset) -> Index:
    """Return the one true class of every row, or raise an error if no sets can be generated from it."""
    if dataset.y is None:
        raise DataError(f"{dataset.name}: no true classes to generate candidate sets from; use candidates = given")
    return one_true_class(dataset, "candidate sets")


def one_true_class(dataset: Dataset, what: str) -> Index:
    """Return the one true class of every row; refuse data from which `what`, in words, cannot be generated."""
    if dataset.y is None or dataset.y.ndim > 1:
        raise DataError(f"{dataset.name}: {what} need one true class per row, which the data do not have")
    if len(dataset.classes) < 2:
        raise DataError(f"{dataset.name}: {what} need at least two classes; the data have one")
    y: Index = dataset.y.numpy()
    return y


def draw_each(chances: Floats, y: Index, generator: np.random.Generator) -> Sets:
    """Return sets that each class joins independently with its own probability, and the true class always."""
    return with_truth(generator.random(chances.shape) < chances, y)


def with_truth(sets: Sets, y: Index) -> Sets:
    """Add the true class to every set, in place."""
    sets[np.arange(len(y)), y] = True
    return sets
