"""The evidence against a site, one number each: high where rows of group t are taught class u more often than others.

    symbol    where it lives                                       shape
    t         column of the input that says "may be of group t"    index
    u         the unprivileged class                               index
    h, h_n    the weights site n received, and those it returned   [K, S] each
    f_n       what these functions return, NaN where undefined     [K]

`probe` and `path` look at the models themselves, without reconstructed rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.network import Net, Network
from imperfed.nn.inversion import Ensemble, Reconstruction

IN_GROUP = 0.5
"""Rows whose column t is above this value belong to the group."""


def group_difference(values: Tensor, weights: Tensor, group: Tensor) -> Tensor:
    """Return the weighted mean of the group's values minus that of the other rows: [K]; NaN if either has no weight."""
    inside, outside = weights * group, weights * ~group
    return (values * inside).sum(-1) / inside.sum(-1) - (values * outside).sum(-1) / outside.sum(-1)


def label(rebuilt: Reconstruction, t: int, u: int) -> Tensor:
    """Return f_n: the mean reconstructed label u in group t minus that of the other rows."""
    y = rebuilt.y[..., u]
    return group_difference(y, torch.ones_like(y), rebuilt.x[..., t] > IN_GROUP)


@torch.no_grad()
def pool(models: Ensemble, rebuilt: Reconstruction, t: int, u: int) -> Tensor:
    """Return f_n: the soft equal-opportunity difference of h_n on the reconstructed rows of all sites together."""
    K, x = len(rebuilt.x), rebuilt.x.flatten(0, 1)
    p = torch.cat([models(x_n.expand(K, *x_n.shape)).softmax(-1)[..., u] for x_n in rebuilt.x], 1)
    return group_difference(p, rebuilt.y[..., u].reshape(1, -1), x[:, t] > IN_GROUP)


@torch.no_grad()
def opportunity(models: Ensemble, rebuilt: Reconstruction, t: int, u: int) -> Tensor:
    """Return f_n of the thesis: the equal-opportunity difference of h_n's decisions on the site's reconstruction."""
    predicted = (models(rebuilt.x).argmax(-1) == u).to(rebuilt.x.dtype)
    positive = (rebuilt.y.argmax(-1) == u).to(rebuilt.x.dtype)
    return group_difference(predicted, positive, rebuilt.x[..., t] > IN_GROUP)


@torch.no_grad()
def probe(models: Ensemble, rows: Tensor, t: int, u: int) -> Tensor:
    """Return how much the centred logit of u rises when column t of common rows goes from 0 to 1: [K]."""
    K, column = len(next(iter(models.tree.values()))), torch.arange(rows.shape[1], device=rows.device) == t
    member, other = (torch.where(column, value, rows).expand(K, *rows.shape) for value in (1.0, 0.0))
    rise = models(member) - models(other)
    return (rise[..., u] - rise.mean(-1)).mean(1)


@torch.no_grad()
def path(models: Ensemble, layers: list[str], t: int, u: int) -> Tensor:
    """Return the weight of all paths from column t to the centred logit of u, through weights alone: [K]."""
    weights = [models.tree[f"{name}.weight"] for name in layers]
    reach = weights[0][:, :, t : t + 1]
    for W in weights[1:]:
        reach = W @ reach
    return reach[:, u, 0] - reach[:, :, 0].mean(1)


def linear_layers(network: Network, inputs: int) -> list[str]:
    """Return the linear layers of a network, from input to logits; refuse networks with other weights."""
    inner = {name: m for name, m in network.rep.named_modules(prefix="rep") if any(True for _ in m.parameters(False))}
    chain = inner | {name: network.get_submodule(name) for name in (*network.between, "head")}
    width = inputs
    for name, layer in chain.items():
        if not isinstance(layer, nn.Linear) or layer.in_features != width:
            raise UsageError(
                f"defence.score = path needs a chain of linear layers, and {name} breaks it; use label, pool or probe"
            )
        width = layer.out_features
    return list(chain)


def shift(score: str, net: Net, sent: Tree, updates: Updates, rows: Tensor, t: int, u: int) -> Tensor:
    """Return f_n: the change of `probe` or `path` from h to h_n, divided by |h_n - h|; NaN if the site did not move."""
    h_n, h = Ensemble(net, updates["w"], updates["buffers"]), Ensemble(net, sent["w"], sent["buffers"])
    if score == "path":
        layers = linear_layers(net.module, rows.shape[1])
        now, before = path(h_n, layers, t, u), path(h, layers, t, u)
    else:
        now, before = probe(h_n, rows, t, u), probe(h, rows, t, u)
    distance: Tensor = (updates["w"] - sent["w"]).norm(dim=1)
    return (now - before) / distance
