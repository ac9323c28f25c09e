"""Gradient inversion: dummy rows whose gradient points in the direction of a site's update (Geiping et al., "Inverting
gradients", NeurIPS 2020). The inversions of all sites run together as one batched program.

The defence `fairfedpapl` inverts updates to see which group they favour (Eq. 5.2 of its thesis), `imperfed leak` to see
what a setting gives away.

    symbol      where it lives                                      shape
    h           weights, the model whose gradient is taken          [K, S]: one row per site
    v_n         targets                                             [K, S]
    X_dm        Dummies.x, inputs from N(0, 1)                      [K, rows, ...]
    Y_dm        softmax of Dummies.z, free logits from N(0, 1)      [K, rows, C]
    mu          mu, weight of the total variation

Every site starts from the same dummy rows: differences between the reconstructions then come from the updates alone,
and neither the order nor the number of sites changes any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

from imperfed.core.batch import Tree
from imperfed.core.network import Net
from imperfed.nn.optimizers import Adam

Forward = Callable[[Tree, Tensor], Tensor]
"""A network at named weights."""
TINY = 1e-12
"""Keeps the cosine of a zero gradient finite."""


@dataclass(frozen=True)
class Dummies:
    """Dummy rows and the logits of their labels."""

    x: Tensor
    z: Tensor

    def to(self, device: torch.device) -> Dummies:
        """Return the same rows on a device."""
        return Dummies(self.x.to(device), self.z.to(device))

    @classmethod
    def start(cls, rows: int, shape: torch.Size, classes: int, draw: torch.Generator) -> Dummies:
        """Return random rows, without a dimension for sites."""
        return cls(torch.randn(rows, *shape, generator=draw), torch.randn(rows, classes, generator=draw))


@dataclass(frozen=True)
class Reconstruction:
    """Rows that stand for what each site trained on."""

    x: Tensor
    """[K, rows, ...]"""
    y: Tensor
    """[K, rows, C]: soft labels."""
    cosine: Tensor
    """[K]: how well the gradient of the rows matches the update, 1 at best."""


class Ensemble:
    """A network with K sets of shared weights, evaluated at once."""

    def __init__(self, net: Net, w: Tensor, buffers: Tensor) -> None:
        layout, K = net.layout, len(w)
        net.train(False)
        own = (net.w[layout.shared :].expand(K, -1), net.row[layout.shared_end :].expand(K, -1))
        row = torch.cat([w, own[0], buffers, own[1]], 1)
        self.tree = {name: layout.view(row, name).detach() for name in layout.fields}
        self.shared = [name for name, f in layout.fields.items() if f.end <= layout.shared]
        for name in self.shared:
            self.tree[name].requires_grad_()
        self._one: Forward = lambda tree, x: torch.func.functional_call(net.module, tree, (x,))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [K, rows, C] of x [K, rows, ...]."""
        if len(x) == 1:  # not every layer can be mapped over models
            return self._one({name: t[0] for name, t in self.tree.items()}, x[0]).unsqueeze(0)
        logits: Tensor = torch.func.vmap(self._one)(self.tree, x)
        return logits

    def gradients(self, x: Tensor, y: Tensor, several: bool = False) -> list[Tensor]:
        """Return the gradient of every site's mean soft cross-entropy at its shared weights, itself differentiable.

        `several`: whether rows may have several classes; the cross-entropy is then that of each class by itself.
        """
        logits = self(x)
        of_rows = softplus(logits) - y * logits if several else -y * log_softmax(logits, -1)
        loss = of_rows.sum(-1).mean(1).sum()  # a sum over sites keeps their gradients separate
        weights = [self.tree[name] for name in self.shared]
        return list(torch.autograd.grad(loss, weights, create_graph=True))


def total_variation(x: Tensor) -> Tensor:
    """Return TV(X) of each site, [K]: mean absolute differences of neighbouring columns, for images also of rows."""
    directions = range(2, x.ndim)[-2:] if x.ndim == 5 else (2,)
    terms = [x.diff(dim=d).abs().flatten(1).mean(1) for d in directions if x.shape[d] > 1]
    return torch.stack(terms).sum(0) if terms else x.new_zeros(len(x))


def cosine(a: list[Tensor], b: list[Tensor]) -> Tensor:
    """Return one cosine per site over all tensors together: [K]."""

    def dot(p: list[Tensor], q: list[Tensor]) -> Tensor:
        return torch.stack([(s * t).flatten(1).sum(1) for s, t in zip(p, q, strict=True)]).sum(0)

    return dot(a, b) / (dot(a, a).clamp(min=TINY**2).sqrt() * dot(b, b).clamp(min=TINY**2).sqrt())


def invert(
    net: Net,
    w: Tensor,
    buffers: Tensor,
    v: Tensor,
    start: Dummies,
    steps: int,
    lr: float,
    mu: float,
    labels_known: bool = False,
    several: bool = False,
) -> Reconstruction:
    """Minimise 1 - cos(gradient of the dummy rows at w, v) + mu TV(X) by Adam, for all sites together.

    `labels_known`: keep the labels as they are at the start, and change the rows alone. `several`: whether rows may
    have several classes.
    """
    ensemble, K = Ensemble(net, w, buffers), len(v)
    squash: Callable[[Tensor], Tensor] = torch.sigmoid if several else lambda z: z.softmax(-1)
    targets = [net.layout.view(v, name) for name in ensemble.shared]
    x, z = (t.expand(K, *t.shape).clone().requires_grad_() for t in (start.x, start.z))
    x_adam, z_adam = Adam.of(x), Adam.of(z)
    for step in range(1, steps + 1):
        match = cosine(ensemble.gradients(x, squash(z), several), targets)
        L_rec = 1 - match + mu * total_variation(x)  # Eq. 5.2
        g_x, g_z = torch.autograd.grad(L_rec.sum(), [x, z])
        with torch.no_grad():
            x -= x_adam.move(g_x, lr, step, rate_first=True)
            if not labels_known:
                z -= z_adam.move(g_z, lr, step, rate_first=True)
    y = squash(z)
    reached = cosine(ensemble.gradients(x, y, several), targets)
    return Reconstruction(x.detach(), y.detach(), reached.detach())
