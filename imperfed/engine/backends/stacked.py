"""Several sites' small networks trained in one batched program, where all sites make the same operations.

On small networks most of a step's time is spent on calling operations, not on their arithmetic. Here every linear layer
is one batched product for M sites, and one backward pass and one update serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from imperfed.core.context import LocalResult
from imperfed.core.network import Layout, Net, Network
from imperfed.core.step_layers import StepLayer
from imperfed.engine.local_training import Plan, plan, train_locally
from imperfed.engine.population import Population
from imperfed.engine.seeds import generator
from imperfed.engine.site import RunSpec, SiteUpdate
from imperfed.models.zoo import Rectified

Layer = Callable[[Tensor], Tensor]

SMALL = 1 << 18
"""The number of weights up to which products are cheaper than the calls around them."""
STACKED = 5
"""The most sites in one program: more gain little and would leave cores idle."""
EACH_NUMBER_BY_ITSELF = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.Softplus, nn.LeakyReLU, nn.Identity)


def stackable(spec: RunSpec, network: Network) -> bool:
    """Return whether several sites of this run can be trained in one program."""
    same_steps = spec.local.epochs == 0
    small = spec.layout.trainable == spec.layout.size <= SMALL
    one = spec.objective
    by_rows = one.row_independent and not (one.reads_network or one.has_site_stats or "draws" in one.overridden)
    return spec.algorithm.has_plain_steps and same_steps and small and by_rows and known(network)


def known(network: Network) -> bool:
    """Return whether the network is a chain of layers that can be computed for several sites at once.

    Only these exact types count, since a subclass may compute something else; and no hooks, which would not be called.
    """
    plain = (
        type(network) is Network
        and not network.halved
        and all(type(m) in (nn.Linear, *EACH_NUMBER_BY_ITSELF) or flat(m) for m in chain(network))
    )
    hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in network.modules())
    return plain and not hooked and all(p.requires_grad for p in network.parameters())


def flat(module: nn.Module) -> bool:
    """Return whether a module flattens each example into one row."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def chain(network: Network) -> list[nn.Module]:
    """Return the network's layers in order; a representation that is not a chain counts as one layer."""
    rep: list[nn.Module] = [network.rep]
    if isinstance(network.rep, Rectified):
        rep = [nn.Flatten(), *(m for layer in network.rep for m in (layer, nn.ReLU()))]
    elif type(network.rep) is nn.Sequential:
        rep = list(network.rep)
    return [*rep, *(network.get_submodule(name) for name in network.between), network.head]


class StackedNet:
    """M networks of one shape, used like one `Net`: a batch holds the rows of all sites, one site after another.

    A site's numbers are one row of `numbers`, its gradient one row of `gradients`.
    """

    def __init__(self, network: Network, layout: Layout, numbers: Tensor, gradients: Tensor) -> None:
        self.sites, self.w, self.grad = len(numbers), numbers, gradients
        self.step_layers: list[StepLayer] = []  # no layer that is stacked asks for the step
        self.ones = numbers.new_ones(self.sites)
        self.leaves = {name: nn.Parameter(layout.view(numbers, name)) for name in layout.fields}
        names = {id(p): name for name, p in network.named_parameters()}
        self.layers = [self._layer(m, names) for m in chain(network)]
        self.depth = len(self.layers) - 1 - len(network.between)

    def _layer(self, module: nn.Module, names: dict[int, str]) -> Layer:
        if isinstance(module, nn.Flatten):
            return lambda x: x.flatten(2)
        if isinstance(module, nn.ReLU):
            return relu
        if not isinstance(module, nn.Linear):
            return module
        weight = self.leaves[names[id(module.weight)]]
        if module.bias is None:
            return lambda x: torch.bmm(x, weight.mT)
        bias = self.leaves[names[id(module.bias)]]
        return lambda x: torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    def _apply(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        z = x.view(self.sites, -1, *x.shape[1:])
        for layer in layers:
            z = layer(z)
        return z.flatten(0, 1)

    def __call__(self, x: Tensor) -> Tensor:
        return self._apply(x, self.layers)

    def features(self, x: Tensor) -> Tensor:
        """Return the representation of x."""
        return self._apply(x, self.layers[: self.depth])

    def train(self, mode: bool) -> None:
        """Do nothing: no layer here depends on the mode."""

    def begin_step(self, key: Tensor | None, real: Tensor | None = None) -> None:
        """Do nothing: no layer here depends on the step."""

    def backward(self, losses: Tensor) -> Tensor:
        """Return the gradient of every site's loss at its weights, one row per site (overwritten by the next call)."""
        leaves = tuple(self.leaves.values())
        # This is torch.autograd.grad without its checks, which cost small networks time.
        parts = torch.autograd.Variable._execution_engine.run_backward(
            (losses,), (self.ones,), False, False, leaves, allow_unreachable=True, accumulate_grad=False
        )
        whole = [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, parts, strict=True)]
        torch.cat([part.flatten(1) for part in whole], 1, out=self.grad)
        return self.grad


def train_stacked(population: Population, round: int, number: int, sites: Sequence[int]) -> list[SiteUpdate]:
    """Train several sites in one round, as `SiteRuntime.train` trains one."""
    spec, runtime, starts = population.spec, population.runtime, population.federation.starts
    exchange = spec.exchange(round, number)
    downs = [population.down(k, exchange) for k in sites]
    own = [population.state.personal_of(k) for k in sites]
    rows = [spec.layout.join(d["w"], d["buffers"], personal) for d, personal in zip(downs, own, strict=True)]
    W = torch.stack(rows)
    # A stack can replace a net: it has everything that a plain step uses.
    net = cast(Net, StackedNet(runtime.net.module, spec.layout, W, torch.zeros_like(W)))
    data = population.rows(starts[sites[0]], starts[sites[-1] + 1])
    steps = side_by_side(spec, starts, round, sites)
    local = spec.local_in(round)
    result, losses, memory = train_locally(spec.algorithm, spec.objective, net, data, steps, {}, {}, local, pad=True)
    updates = []
    for m, (k, row) in enumerate(zip(sites, W, strict=True)):
        a, b = (starts[i] - starts[sites[0]] for i in (k, k + 1))
        kept = {name: t[a:b] for name, t in memory.items()}
        opt_state = {name: t[m] for name, t in result.opt_state.items()}
        site_memory = runtime.memory(population.site(k))
        end = LocalResult(runtime.net.load(row), opt_state, downs[m], site_memory, result.steps, result.lr)
        updates.append(runtime.protected(runtime.update(end, float(losses[m]), kept), k, round, downs[m]))
    return updates


def side_by_side(spec: RunSpec, starts: Sequence[int], round: int, sites: Sequence[int]) -> Plan:
    """Put the sites' plans side by side: every batch holds each site's batch of that step.

    Rows are counted from the first site's first row; a padding slot holds the number of rows up to the last site's end.
    """
    first, end = starts[sites[0]], starts[sites[-1] + 1]
    parts, drawn = [], []
    for k in sites:
        n = starts[k + 1] - starts[k]
        one = plan(spec.algorithm, spec.objective, spec.local, n, generator(spec.seed, round, k, "batches"))
        parts.append(torch.where(one.rows < n, one.rows + (starts[k] - first), end - first))
        drawn.append(one.draws)
    # A plain step draws nothing for itself, so all numbers are those of augmentation: one or more per row.
    draws = {name: torch.cat([one[name] for one in drawn], 1) for name in drawn[0]}
    return Plan(torch.cat(parts, 1), draws, sites=len(sites))
