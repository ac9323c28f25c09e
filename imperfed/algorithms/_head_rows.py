"""The common part of methods that merge the head class by class, each row with weights of its own (FedPSL, FLAG)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from imperfed.core.network import Layout

HEAD = ("head.weight", "head.bias")


def merged_rows(sent: Tensor, weights: Tensor, layout: Layout) -> Iterator[tuple[str, Tensor]]:
    """Yield the parts of the head, row c being sum_k weights_kc of the sites' rows; a personal head is not merged."""
    for name in HEAD:
        if name in layout.fields and layout.fields[name].end <= layout.shared:
            yield name, torch.einsum("kc,kc...->c...", weights, layout.view(sent, name))
