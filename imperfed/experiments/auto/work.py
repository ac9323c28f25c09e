"""How much work a search is, in seconds of one core of an ordinary machine: an estimate from the sizes alone.

The number of trials follows from it, never from a clock, so that the same request leads to the same choice on any
machine, however busy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from imperfed.alone import AloneModel
from imperfed.alone.trained_network import NetworkAlone
from imperfed.core.federation import Federation
from imperfed.core.network import Network
from imperfed.data.federate import FederatedData
from imperfed.experiments.auto.combinations import Combination
from imperfed.experiments.auto.halving import kept
from imperfed.experiments.run_parts import network_for
from imperfed.repairs.posterior import PosteriorRepair

RUNGS = (3, 9, 27, 81)
"""Rounds after which trials are compared. In the last rung a trial ends early once it gets no better."""
CORES = 2
"""The cores for which a budget in minutes is meant."""
STEP, CONVOLUTION, PRODUCTS = 8e-4, 5e-4, 2e10
"""Seconds of a step whatever the network, and of each convolution whatever its size; multiplications per second."""
ANSWER, REPAIR_PRODUCTS = 1e-3, 2e9
"""Seconds of a site's answer in a repair whatever its rows, and multiplications per second there (float64)."""
FEWEST, ENOUGH, MOST = 3, 24, 72
"""Trials of a search: the fewest, as many as there should be if the best of them get `LONG` rounds, and the most."""
LONG = 27
"""The rounds that the best trials should get before more trials are begun: about those of a method run by its name."""


@dataclass(frozen=True)
class SearchPlan:
    """What a search does: its first trials, and the rounds after which they are compared."""

    trials: int
    rungs: tuple[int, ...]
    seconds: float
    """The work of all trials on one core, as estimated."""


def plan(combinations: Sequence[Combination], data: FederatedData, budget: float, rounds: int) -> SearchPlan:
    """Return the longest list of trials, in order, that fits the budget in minutes; `rounds`: the most of a trial."""
    per_round = [seconds_per_round(one, data) for one in combinations]
    groups = [one.recipe for one in combinations]
    left = 60 * budget * CORES
    for fewest, rungs in preferences(tuple(sorted({min(r, rounds) for r in RUNGS}))):
        for trials in range(min(MOST, len(combinations)), min(fewest, len(combinations)) - 1, -1):
            work = estimate(per_round[:trials], rungs, groups[:trials])
            if work <= left:
                return SearchPlan(trials, rungs, work)
    rungs, trials = (min(RUNGS[0], rounds),), min(FEWEST, len(combinations))
    return SearchPlan(trials, rungs, estimate(per_round[:trials], rungs, groups[:trials]))


def preferences(rungs: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Return how a search may look, the best first: the fewest trials, and the rungs.

    Many trials of a few rounds end below a few that are trained as a method run by its name is, so trials are given up
    before rounds are, down to `LONG`.
    """
    lengths = [rungs[:n] for n in range(len(rungs), 0, -1)]
    long = [some for some in lengths if some[-1] >= min(LONG, rungs[-1])]
    return [(ENOUGH, some) for some in long] + [(FEWEST, some) for some in lengths if some not in long[:-1]]


def estimate(per_round: Sequence[float], rungs: Sequence[int], groups: Sequence[int]) -> float:
    """Return the work of all rungs; which trials stay is not known, so they count as the mean of all."""
    mean, total, before = sum(per_round) / len(per_round), 0.0, 0
    alive = list(Counter(groups).values())
    for rung, rounds in enumerate(rungs):
        total += sum(alive) * mean * (rounds - before)
        alive = [min(kept(sum(alive)) + 1, sum(alive))] if rung == len(rungs) - 2 else [kept(n) for n in alive]
        before = rounds
    return total


def seconds_per_round(combination: Combination, data: FederatedData) -> float:
    """Return the work of one round at all sites."""
    config, federation = combination.config, data.federation
    network = config.method.build(network_for(config, data))
    one_row = torch.zeros(1, *federation.x.shape[1:], dtype=federation.x.dtype)  # the rows may be elsewhere
    per_row = 3 * products(network, one_row) / PRODUCTS
    each = STEP + CONVOLUTION * sum(isinstance(module, nn.Conv2d) for module in network.modules())
    steps = sum(config.local.steps_of(n) for n in federation.sizes())
    return steps * (each + config.local.batch * per_row)


@torch.no_grad()
def products(network: Network, x: Tensor) -> int:
    """Return the multiplications of a forward pass for one row."""
    # Some networks apply a linear layer without calling it; of convolutions, only the output shows how often they move.
    total = sum(m.weight.numel() for m in network.modules() if isinstance(m, nn.Linear))

    def count(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d)
        total += module.weight[0].numel() * output[0].numel()

    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    hooks = [layer.register_forward_hook(count) for layer in convolutions]
    network.eval()(x)
    for hook in hooks:
        hook.remove()
    return total


def repair_seconds(federation: Federation) -> float:
    """Return the work of the posterior repair; HoG features of images are fewer than their pixels, or about as many."""
    rows, columns, classes = federation.starts[-1], math.prod(federation.x.shape[1:]), len(federation.classes)
    answers = len(PosteriorRepair().conversation(federation.classes, trusted=False)) * len(federation.sites)
    return answers * ANSWER + PosteriorRepair.products(rows, columns, classes) / REPAIR_PRODUCTS


def fitting_seconds(kind: AloneModel, rows: int, columns: int, classes: int, models: int) -> float:
    """Return the work of fitting a model alone; `models`: one per class where rows have several."""
    size = rows * max(1.0, math.log2(max(rows, 2)))
    if isinstance(kind, NetworkAlone):
        return kind.steps(rows) * (STEP + kind.products(columns, classes) / PRODUCTS)
    one = {
        "logistic": 2e-7 * rows * columns * classes + 0.02,
        "forest": 200 * (4e-4 + 2e-7 * size * math.sqrt(columns)),
        "boosting": 100 * classes * (min(5e-3, 1e-5 * rows) + 3e-9 * rows * columns),
    }
    return models * one.get(kind.name, max(one.values()))
