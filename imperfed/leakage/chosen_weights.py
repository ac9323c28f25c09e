"""Weights that a dishonest coordinator sends to single out rows (Fowl et al., "Robbing the Fed", 2022).

All units of the first layer measure the same direction h of the inputs, each with a threshold of its own, and the last
layer weighs all units alike. A row then reaches every unit whose threshold it passes, with the same factor. What two
neighbouring units have not in common comes from the rows between their thresholds; of one row, the quotient is the row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.network import Net
from imperfed.leakage.first_layer import SILENT

FIRM = 1.0
"""The spread of the weights that the last layer has for every unit, one per class."""


def can_single_out(net: Net, layer: tuple[str, str]) -> bool:
    """Return whether a layer on the inputs is followed by the last one directly, and both are sent."""
    head = net.layout.fields.get("head.weight")
    units = net.layout.fields[layer[0]].shape[0]
    return layer[0] != "head.weight" and head is not None and head.end <= net.layout.shared and head.shape[1] == units


def chosen(net: Net, w: Tensor, layer: tuple[str, str], x: Tensor) -> Tensor:
    """Return the weights to send; of the inputs x, only the mean and the spread along h are used."""
    draw, w = torch.Generator().manual_seed(0), w.clone()
    weight, bias, head = (net.layout.view(w, name) for name in (*layer, "head.weight"))
    h = torch.randn(weight.shape[1], generator=draw)
    along = x.flatten(1) @ h
    shares = (torch.arange(len(bias)) + 0.5) / len(bias)
    weight.copy_(h.expand_as(weight))
    bias.copy_(-(along.mean() + along.std() * torch.special.ndtri(shares)))
    head.copy_(FIRM * torch.randn(len(head), 1, generator=draw) / len(bias))
    return w


def between_thresholds(net: Net, gradient: Tensor, layer: tuple[str, str]) -> Tensor:
    """Return the quotient of every pair of neighbouring units that differ."""
    g_w, g_b = (net.layout.view(gradient, name) for name in layer)
    none = torch.zeros(1)
    d_w, d_b = g_w - torch.cat([g_w[1:], none.expand(1, g_w.shape[1])]), g_b - torch.cat([g_b[1:], none])
    differ = d_b.abs() > SILENT * d_b.abs().max()
    return d_w[differ] / d_b[differ].unsqueeze(1)
