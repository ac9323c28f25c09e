"""FedAvg-fixed: class embeddings are drawn at random before round 0 and never moved; only theta is learned.

The baseline of FedALC (An et al., Sec. V-D) and "Baseline-2" of FedAwS. In 512 dimensions random vectors are nearly
orthogonal, so nothing can collapse: a strong baseline that belongs in every comparison.

Source: FedALC's paper, and a public summary of FedAwS's.

    symbol    where it lives                      does it travel
    theta     server["w"] without its head        down and up, mean of all
    W         the head of server["w"], [C, D]     down and up, unmoved; in the papers row y once, where class y is held
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imperfed.algorithms._class_embeddings import ClassEmbeddings


@dataclass(frozen=True)
class FedAvgFixed(ClassEmbeddings):
    """Averaging on the positive loss with random class embeddings that never change."""

    name: ClassVar[str] = "fedavg-fixed"
