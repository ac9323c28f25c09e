"""Instance-dependent noise (Wu et al., "FedNoRo", IJCAI 2023): rows that look like another class get its label.

Source: checked against the code of FedNoRo's authors.

    symbol     where it lives
    rho        noisy_sites: floor(rho K) sites are noisy in the paper; here each with this probability
    gamma_k    drawn from U(lowest_rate, highest_rate) at a noisy site
    s_i        opinions: probabilities of a small network that was trained on the true classes

floor(gamma_k n_k) rows are drawn without replacement, in proportion to 1 - s_i[y_i]; each gets a wrong class, drawn in
proportion to s_i.

Departs from the paper in: sites are noisy independently; where the network is certain, so that too few rows have a
positive weight, the others are drawn evenly, and a row's wrong classes likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from imperfed.core.errors import UsageError
from imperfed.data.corruption.candidates.base import Floats, one_true_class
from imperfed.data.corruption.candidates.clean_network import clean_logits
from imperfed.data.corruption.noise.base import Mask, Noise
from imperfed.data.dataset import Dataset
from imperfed.data.generator import Index, check_share

LEAST = 1e-12
"""A weight that all rows and classes have, so that enough of them can be drawn."""


@dataclass(frozen=True)
class InstanceNoise(Noise):
    """At noisy sites, the rows that a network trained on the true classes finds hardest get the class it confuses."""

    name: ClassVar[str] = "instance-dependent"
    noisy_sites: float = 0.4  # rho, the probability that a site is noisy
    lowest_rate: float = 0.5  # the range of gamma_k, the share of wrong labels at a noisy site
    highest_rate: float = 0.7

    def __post_init__(self) -> None:
        check_share("noise.noisy_sites", self.noisy_sites)
        check_share("noise.lowest_rate", self.lowest_rate)
        check_share("noise.highest_rate", self.highest_rate)
        if self.lowest_rate > self.highest_rate:
            raise UsageError(
                f"noise.lowest_rate ({self.lowest_rate}) is above noise.highest_rate ({self.highest_rate})"
            )

    def opinions(self, dataset: Dataset, data_seed: int) -> Floats | None:
        y, classes = one_true_class(dataset, "noisy labels"), len(dataset.classes)
        logits = torch.from_numpy(clean_logits(dataset.x, torch.from_numpy(y), classes, data_seed))
        s: Floats = logits.double().softmax(1).numpy()
        return s

    def corrupt(self, y: Index, classes: int, own: Mask | None, generator: np.random.Generator) -> Index:
        return self.corrupt_rows(y, np.full((len(y), classes), 1 / classes), classes, own, generator)

    def corrupt_rows(
        self, y: Index, opinions: Floats | None, classes: int, own: Mask | None, generator: np.random.Generator
    ) -> Index:
        assert opinions is not None
        noisy = generator.random() < self.noisy_sites
        rate = generator.uniform(self.lowest_rate, self.highest_rate)  # gamma_k
        wrong = int(noisy * rate * len(y))  # floor(gamma_k n_k)
        doubt = 1 - opinions[np.arange(len(y)), y] + LEAST
        rows = generator.choice(len(y), wrong, replace=False, p=doubt / doubt.sum())
        labels = y.copy()
        labels[rows] = self.wrong_classes(y[rows], opinions[rows], generator)
        return labels

    def wrong_classes(self, y: Index, opinions: Floats, generator: np.random.Generator) -> Index:
        """Return one class for each row, drawn in proportion to the opinions about the wrong ones."""
        p = opinions + LEAST
        p[np.arange(len(y)), y] = 0
        upto = np.cumsum(p / p.sum(1, keepdims=True), 1)
        drawn = (generator.random((len(y), 1)) >= upto).sum(1)
        # Rounding may leave the last sum below 1; the last class that can be drawn is then meant.
        last = p.shape[1] - 1 - (p[:, ::-1] > 0).argmax(1)
        labels: Index = np.minimum(drawn, last)
        return labels
