"""Rows from the gradient of a linear layer that stands on the inputs: a quotient, without any search.

For unit j of y = W x + b the gradients are dL/dW_j = sum_i d_ij x_i and dL/db_j = sum_i d_ij, over the rows i of a
step. If one row alone reaches the unit, x = dL/dW_j / dL/db_j (Phong et al., 2017). With one row per step that is every
unit; in larger batches it is a unit whose ReLU lets only one row pass. Such units are recognised because they agree.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.network import Net
from imperfed.nn.inversion import Ensemble

AGREE = 1e-2
"""How far quotients of the same row may be apart, in their own lengths."""
SILENT = 1e-3
"""A unit whose bias moves less than this share of the most moved one says too little."""
PROBES = 1e-3
"""How exactly a quotient must return the row that a layer is tested with."""


def input_layers(net: Net, w: Tensor, buffers: Tensor, shape: torch.Size) -> list[tuple[str, str]]:
    """Return weight and bias of every shared layer that stands on the inputs: one row's quotient is that row."""
    fields = {name: f for name, f in net.layout.fields.items() if f.end <= net.layout.shared and f.trainable}
    pairs = [(f"{stem}.weight", f"{stem}.bias") for name in fields if (stem := name.removesuffix(".weight")) != name]
    wide = [(a, b) for a, b in pairs if b in fields and fields[a].shape[1:] == (shape.numel(),)]
    if not wide:
        return []
    x = torch.randn(1, 1, *shape, generator=torch.Generator().manual_seed(0)).to(w.device)
    ensemble = Ensemble(net, w[None], buffers[None])
    classes = ensemble(x).shape[-1]
    y = torch.eye(classes, device=w.device)[:1].view(1, 1, classes)
    g = {name: t[0] for name, t in zip(ensemble.shared, ensemble.gradients(x, y), strict=True)}
    found = []
    for weight, bias in wide:
        quotients = g[weight] / g[bias].unsqueeze(1)
        spoken = quotients[g[bias].abs() > SILENT * g[bias].abs().max()]
        if len(spoken) and (spoken - x.flatten()).abs().max() < PROBES * x.abs().max():
            found.append((weight, bias))
    return found


def quotients(net: Net, gradient: Tensor, weight: str, bias: str) -> Tensor:
    """Return candidate rows, those on which most units agree first: [at most the number of units, inputs]."""
    g_w, g_b = (net.layout.view(gradient, name) for name in (weight, bias))
    spoken = g_b.abs() > SILENT * g_b.abs().max()
    if not spoken.any():
        return g_w[:0]
    rows, strength = g_w[spoken] / g_b[spoken].unsqueeze(1), g_b[spoken].abs()
    apart = torch.cdist(rows, rows) / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    support = ((apart < AGREE) * strength).sum(1)
    candidates: list[int] = []
    for j in support.argsort(descending=True).tolist():
        if all(apart[j, taken] >= AGREE for taken in candidates):
            candidates.append(j)
    weights = (apart[candidates] < AGREE) * strength
    made: Tensor = (weights @ rows) / weights.sum(1, keepdim=True)
    return made
