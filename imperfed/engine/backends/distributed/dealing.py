"""Which rank holds which sites: by what a site costs, and by which sites are on duty together."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from imperfed.core.exchange import Train
from imperfed.core.threads import one_thread
from imperfed.engine.backends.task_pool import attempt
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population
from imperfed.engine.seeds import on_duty_in
from imperfed.engine.site import SiteRuntime

TRIED = 3
"""Local steps of a trial."""
FORESEEN = 1000
"""The most rounds whose sites on duty are looked at."""
CELLS = 1 << 24
"""The most numbers, sites times rounds, in which that is written down; of many sites, fewer rounds are looked at."""
SWEEPS = 4
"""The most times that every site is looked at again."""
ANY = -1
"""In the place of a rank: no round that was looked at says which."""


def deal(population: Population, on_duty: int, ranks: int) -> tuple[list[tuple[int, ...]], float]:
    """Return the sites of every rank, and by how much chance lengthens the rounds: 1.1 is a tenth.

    Which sites are on duty together is known before the first round, from the seed. Site 0 is always at rank 0, where
    the server finds the personal weights that it trains with on rows of its own.
    """
    costs, K, spec = site_costs(population), len(population.sizes), population.spec
    rounds = 1 if on_duty >= K else min(spec.rounds, FORESEEN, max(1, CELLS // K))
    work = torch.zeros(rounds, K, dtype=torch.float64)
    for t in range(rounds):
        at = list(on_duty_in(spec.seed, t, K, on_duty))
        work[t, at] = torch.tensor(costs, dtype=torch.float64)[at]
    homes, load = balanced(work, ranks)
    place_the_rest(homes, costs, ranks)
    homes = [(home - homes[0]) % ranks for home in homes]
    sites = [tuple(k for k, home in enumerate(homes) if home == rank) for rank in range(ranks)]
    return sites, float(load.max(1).values.sum() / load.mean(1).sum())


def balanced(work: Tensor, ranks: int) -> tuple[list[int], Tensor]:
    """Return a rank for every site, so that in each round the ranks have about equally much to do; and who has what.

    `work`: what each site costs in each round, [T, K]. The sum of squares over rounds and ranks is made small, first
    by placing one site after the other, the most expensive first, then by moving single sites while that helps. A site
    without work in any of the rounds gets `ANY`.
    """
    T, K = work.shape
    load, homes, total = torch.zeros(T, ranks, dtype=work.dtype), [ANY] * K, work.sum(0)
    order = [k for k in total.argsort(descending=True, stable=True).tolist() if total[k] > 0]
    for k in order:
        homes[k] = int((work[:, k] @ load).argmin())
        load[:, homes[k]] += work[:, k]
    for _ in range(SWEEPS):
        moved = False
        least = 1e-9 * float(load.square().sum())
        for k in order:
            gains = _moving(work, load, k, homes[k])
            if (best := int(gains.argmin())) != homes[k] and gains[best] < -least:
                load[:, homes[k]] -= work[:, k]
                load[:, best] += work[:, k]
                homes[k], moved = best, True
        if not moved:
            break
    return homes, load


def place_the_rest(homes: list[int], costs: list[float], ranks: int) -> None:
    """Give each site that has no rank yet to the rank whose sites cost least together, the most expensive first."""
    held = [0.0] * ranks
    for home, cost in zip(homes, costs, strict=True):
        if home != ANY:
            held[home] += cost
    for k in sorted((k for k, home in enumerate(homes) if home == ANY), key=lambda k: -costs[k]):
        homes[k] = held.index(min(held))
        held[homes[k]] += costs[k]


def _moving(work: Tensor, load: Tensor, k: int, home: int) -> Tensor:
    """Return by how much half the sum of squares grows if a site moves from its rank to each other one; 0 at home."""
    own = work[:, k]
    growth = own @ load - own @ load[:, home] + own @ own
    growth[home] = 0
    return growth


def site_costs(population: Population) -> list[float]:
    """Return what each site's local steps cost: their number, if all steps have equally many rows.

    Otherwise a step is measured where it has the fewest and the most rows, and in between it costs accordingly. Nothing
    is measured that need not be: another dealing changes the last bits of a result.
    """
    spec, sizes = population.spec, population.sizes
    if not isinstance(spec.exchange(0, -1), Train):
        return [float(n) for n in sizes]
    steps = [float(spec.local.steps_of(n)) for n in sizes]
    of_all = "prepare" in spec.algorithm.overridden  # which may pass over all rows of the site
    rows = sizes if of_all else [min(n, spec.local.batch) for n in sizes]
    small, large = min(rows), max(rows)
    if small == large:
        return steps
    ends = [_seconds_per_step(population, rows.index(n)) for n in (large, small)]
    slope = (ends[0] - ends[1]) / (large - small)
    return [s * max(ends[1] + slope * (n - small), 1e-9) for s, n in zip(steps, rows, strict=True)]


def _seconds_per_step(population: Population, k: int) -> float:
    """Return the time of one local step of a site, the shorter of two trials; nothing that it does is kept."""
    spec = population.spec
    short = replace(spec.local, steps=TRIED, epochs=0, min_steps=0, max_steps=0)
    runtime = SiteRuntime(replace(spec, local=short), population.runtime.net)
    number = len(spec.algorithm.exchanges(0)) - 1
    times = []
    for _ in range(2):
        began = time.perf_counter()
        with one_thread():
            down = population.down(k, spec.exchange(0, number))
            if isinstance(attempt(runtime, (SiteRuntime.respond, (population.site(k), down, 0, number))), Failure):
                return 1.0  # it will fail in the first round as well, where that is told
        times.append((time.perf_counter() - began) / TRIED)
    return min(times)
