"""The candidate sets that come with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from imperfed.core.errors import DataError
from imperfed.core.labels import Candidates
from imperfed.data.corruption.candidates.base import CandidateGenerator
from imperfed.data.dataset import Dataset


@dataclass(frozen=True)
class GivenSets(CandidateGenerator):
    """The candidate sets that come with the data; an error if there are none."""

    name: ClassVar[str] = "given"

    def generate(
        self, dataset: Dataset, data_seed: int, generator: np.random.Generator
    ) -> tuple[Candidates, dict[str, Any]]:
        if dataset.candidates is None:
            raise DataError(f"{dataset.name}: no candidate sets come with the data; name a generator instead of given")
        return Candidates(dataset.candidates, len(dataset.classes)), {}
