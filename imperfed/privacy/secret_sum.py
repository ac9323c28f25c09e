"""Secure aggregation, with the noise of all sites together: the server sees the weighted sum of the updates only.

Sums under pairwise masks that cancel are from Bonawitz et al., "Practical secure aggregation for privacy-preserving
machine learning", CCS 2017; noise in shares from Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism
for federated learning with secure aggregation", ICML 2021, here with rounded Gaussian noise. The protocol differs: the
sites of a sum are named after they have trained, and mask once, for these sites (`flower/site/masked_shares.py`).

    symbol    where it lives                                        does it travel
    w_t       down["w"], the weights that every site was sent       down
    u_k       the site's weights after training, less w_t           never
    C         clip                                                  never
    sigma     noise                                                 never
    U, p_k    `Summed`: the sites of the sum, and their weights     down
    z_k       standard normal numbers, from the site's own key      never

The share of site k is p_k u_k min(1, C / |u_k|) + sigma C max_j p_j / sqrt(|U|) z_k, in whole multiples of 2^-40. The
noise of the sum has the standard deviation sigma C max_j p_j, and other rows at site k change the sum by at most
2 p_k C: noise of sigma / 2 times what the rows can change, as with privacy=site, but sqrt(|U|) times less of it in the
mean of equal sites. It rests on all sites adding theirs: where c of them do not, or tell the server, sigma counts as
sigma sqrt(1 - c / |U|).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.mechanism import SLIGHT, SumMechanism, Summed
from imperfed.privacy.keyed_noise import gaussian

UNIT = 2.0**-40
"""The step of fixed-point numbers: far finer than float32 near 1, with room for sums up to 2^23."""
LARGEST_CLIP = 2.0**16
TAIL = 8.0
"""By how many standard deviations the length of d normal numbers stays below sqrt(d) + this many."""


@dataclass(frozen=True)
class SecretSum(SumMechanism):
    """Add up the sites' updates under masks: the coordinator learns the sum and no single update."""

    name: ClassVar[str] = "sum"
    clip: float = 10.0  # C: the largest norm of a site's update in a round
    noise: float = 0.0  # sigma: standard deviation of the noise of all sites, divided by C and the largest weight

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("privacy", clip=self.clip)
        not_negative("privacy", noise=self.noise)
        if self.clip > LARGEST_CLIP or self.noise * self.clip > LARGEST_CLIP:
            raise UsageError(f"privacy.clip, and privacy.noise times it, may be {LARGEST_CLIP:g} at most")

    @property
    def multiplier(self) -> float:
        return self.noise / 2  # two clipped updates are at most 2 C apart

    def share(self, sent: Tensor, w: Tensor, weight: float, summed: Summed, key: bytes) -> Tensor:
        u = w.double() - sent.double()
        u *= weight * (self.clip / torch.linalg.vector_norm(u)).clamp(max=1)
        if self.noise:
            deviation = self.noise * self.clip * max(summed.weights) / math.sqrt(len(summed.sites))
            u += deviation * gaussian(key, len(u)).to(u.device)
        return (u / UNIT).round().to(torch.int64)

    def unfold(self, total: Tensor) -> Tensor | None:
        change = total.double() * UNIT
        longest = self.clip * (1 + SLIGHT + self.noise * (math.sqrt(len(change)) + TAIL))
        return change if float(torch.linalg.vector_norm(change)) <= longest else None
