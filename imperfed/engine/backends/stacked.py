"""Several sites' small networks trained in one batched program, where the program is the same for all of them.

On small networks a step's time goes into calling operations, not into their arithmetic. Here every linear layer is one
batched product for M sites, and one backward pass and one update serve them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from imperfed.core.algorithm import Algorithm
from imperfed.core.context import LocalResult
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Plan, plan, train_locally
from imperfed.engine.seeds import generator
from imperfed.engine.site import RunSpec, SiteRuntime, SiteUpdate, answer_of
from imperfed.models.zoo import Rectified

Layer = Callable[[Tensor], Tensor]

SMALL = 1 << 18
"""Weights up to which products are cheaper than the calls around them."""
TOGETHER = 5
"""Sites of a round in one program at most: more gain little, and would leave cores without work."""
EACH_NUMBER_BY_ITSELF = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.Softplus, nn.LeakyReLU, nn.Identity)
PLAIN_STEP = ("draws", "prepare", "init_optimizer", "step_loss", "correct", "move", "gradient", "local_step")
"""Hooks that must be the base class's: then a local step is the objective's gradient and SGD with momentum."""


def stackable(spec: RunSpec, network: Network) -> bool:
    """Whether several sites of this job can be trained in one program."""
    plain = all(getattr(type(spec.algorithm), hook) is getattr(Algorithm, hook) for hook in PLAIN_STEP)
    same_steps = spec.local.epochs == 0
    small = spec.layout.trainable == spec.layout.size <= SMALL
    by_rows = spec.objective.row_independent and type(spec.objective).site_stats is Objective.site_stats
    return plain and same_steps and small and by_rows and known(network)


def known(network: Network) -> bool:
    """Whether the network is a chain of layers that can be computed for several sites at once.

    Exactly these types: a class of the user's own may compute otherwise. And no hooks, which would not be called.
    """
    plain = (
        type(network) is Network
        and not network.halved
        and all(type(m) in (nn.Linear, *EACH_NUMBER_BY_ITSELF) or flat(m) for m in chain(network))
    )
    hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in network.modules())
    return plain and not hooked and all(p.requires_grad for p in network.parameters())


def flat(module: nn.Module) -> bool:
    """Whether it makes one row of an example, whatever its shape."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def chain(network: Network) -> list[nn.Module]:
    """The network's layers in order; a module that is no chain itself stands for one layer."""
    rep: list[nn.Module] = [network.rep]
    if isinstance(network.rep, Rectified):
        rep = [nn.Flatten(), *(m for layer in network.rep for m in (layer, nn.ReLU()))]
    elif type(network.rep) is nn.Sequential:
        rep = list(network.rep)
    return [*rep, *(network.get_submodule(name) for name in network.between), network.head]


class StackedNet:
    """M networks of one shape, used as one `Net` is: a batch holds the rows of all sites, one site after the other.

    A site's numbers are a row of the matrix given, its gradient a row of the other.
    """

    def __init__(self, network: Network, layout: Layout, numbers: Tensor, gradients: Tensor) -> None:
        self.sites, self.w, self.grad = len(numbers), numbers, gradients
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
        """The representation of x."""
        return self._apply(x, self.layers[: self.depth])

    def train(self, mode: bool) -> None:
        """No layer here cares."""

    def backward(self, losses: Tensor) -> Tensor:
        """The gradient of every site's loss at its own weights, a row a site (overwritten by the next call)."""
        leaves = tuple(self.leaves.values())
        # What torch.autograd.grad comes down to, without its checks, which small networks feel.
        parts = torch.autograd.Variable._execution_engine.run_backward(
            (losses,), (self.ones,), False, False, leaves, allow_unreachable=True, accumulate_grad=False
        )
        whole = [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, parts, strict=True)]
        torch.cat([part.flatten(1) for part in whole], 1, out=self.grad)
        return self.grad


def train_together(runtime: SiteRuntime, round: int, sites: Sequence[int]) -> list[SiteUpdate]:
    """The local training of several sites in one round, as `site.train` does it for one."""
    spec, starts = runtime.spec, runtime.spec.federation.starts
    downs = [runtime.down(k) for k in sites]
    rows = [
        spec.layout.join(d["w"], d["buffers"], runtime.state.personal[k]) for d, k in zip(downs, sites, strict=True)
    ]
    W = torch.stack(rows)
    stack = StackedNet(runtime.net.module, spec.layout, W, torch.zeros_like(W))
    data = runtime.rows(starts[sites[0]], starts[sites[-1] + 1])
    steps = in_step(spec, round, sites)
    # A stack stands in for a net: what a plain step asks of one, it has.
    net = cast(Net, stack)
    done, losses, memory = train_locally(spec.algorithm, spec.objective, net, data, steps, {}, {}, spec.local, pad=True)
    answers = []
    for m, (k, row) in enumerate(zip(sites, W, strict=True)):
        a, b = (starts[i] - starts[sites[0]] for i in (k, k + 1))
        kept = {name: t[a:b] for name, t in memory.items()}
        end = LocalResult(
            runtime.net.load(row),
            {name: t[m] for name, t in done.opt_state.items()},
            downs[m],
            runtime.memory(k),
            done.steps,
            done.lr,
        )
        answers.append(answer_of(runtime, end, float(losses[m]), kept))
    return answers


def in_step(spec: RunSpec, round: int, sites: Sequence[int]) -> Plan:
    """The sites' plans side by side: every batch holds each site's batch of that step.

    Rows are counted from the first site's first row; a padding slot holds the number of all rows up to the last site's.
    """
    starts = spec.federation.starts
    first, end = starts[sites[0]], starts[sites[-1] + 1]
    parts = []
    for k in sites:
        n = starts[k + 1] - starts[k]
        rows = plan(spec.algorithm, spec.local, n, generator(spec.seed, round, k, "batches")).rows
        parts.append(torch.where(rows < n, rows + (starts[k] - first), end - first))
    return Plan(torch.cat(parts, 1), {}, sites=len(sites))
