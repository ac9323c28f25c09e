"""The attacks on one site's round, and how near they come to the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.labels.one_class import OneClass
from imperfed.engine.engine import Engine
from imperfed.leakage.curious import CuriousCoordinator
from imperfed.leakage.label_shares import whole_numbers, wrong_share
from imperfed.leakage.matching import Matched, by_chance, match, recovered_by_chance
from imperfed.leakage.observed import SeenExchange
from imperfed.leakage.visited import Visited, class_counts, visited_rows
from imperfed.results.leak_summary import RowPair, SiteLeak


def attack_site(
    engine: Engine, round: int, k: int, seen: SeenExchange, iterations: int, layer: tuple[str, str] | None
) -> tuple[SiteLeak, list[RowPair]]:
    """Return what the coordinator finds out about one site's round, and every reconstruction."""
    population, x = engine.population, engine.population.federation.x
    n = population.sizes[k]
    rows = len(visited_rows(engine, round, k, n).unique())
    local, net = population.spec.local_in(round), engine.server.net
    between = (float(x.min()), float(x.max()))
    kind = type(population.federation.labels)
    attacker = CuriousCoordinator(net, seen, local, n, rows, x.shape[1:], between, kind.several, layer)
    gradient = attacker.gradient()
    shares = None if kind.several else attacker.label_shares(gradient)
    quotients = attacker.by_quotients(gradient)
    searched, cosine = attacker.by_search(gradient, shares if issubclass(kind, OneClass) else None, iterations)
    made = torch.cat([quotients, searched])
    return judged(population.federation.sites[k], Visited.of(engine, round, k), made, len(quotients), cosine, shares)


def judged(
    name: str, truth: Visited, made: Tensor, quotients: int, cosine: float, shares: Tensor | None
) -> tuple[SiteLeak, list[RowPair]]:
    """Compare reconstructions, of which the first are quotients, with the truth."""
    made, rows, others = made.flatten(1), truth.x.flatten(1), truth.others.flatten(1)
    best, chance = match(made, rows, others), by_chance(made, rows, others)
    wrong, guessed = (None, None) if shares is None else wrong_labels(shares, truth)
    leak = SiteLeak(
        site=name,
        rows=len(rows),
        visits=len(truth.labels),
        attempted=len(best.row),
        exact=int(match(made[:quotients], rows, others).exact.sum()),
        recovered=int(best.recovered.sum()),
        by_chance=recovered_by_chance(chance, len(rows), len(others)),
        distance=float(best.distance.median()),
        closer=best.share_closer,
        closer_by_chance=chance.share_closer,
        cosine=cosine,
        labels_wrong=wrong,
        labels_guessed=guessed,
    )
    return leak, as_pairs(name, best, rows, made)


def wrong_labels(shares: Tensor, truth: Visited) -> tuple[float, float | None]:
    """Return the share of labels that the estimate has wrong, and that of a guess: the mix of the rows elsewhere."""
    guess, visits = class_counts(truth.other_labels), len(truth.labels)
    estimates = [shares, guess / guess.sum()] if len(truth.other_labels) else [shares]
    if isinstance(truth.labels, OneClass):
        estimates = [whole_numbers(estimate, visits) for estimate in estimates]
    wrong = [wrong_share(estimate, class_counts(truth.labels)) for estimate in estimates]
    return wrong[0], wrong[1] if len(wrong) > 1 else None


def as_pairs(site: str, best: Matched, rows: Tensor, made: Tensor) -> list[RowPair]:
    """Return every row that has a reconstruction, with it."""

    def numbers(t: Tensor) -> tuple[float, ...]:
        return tuple(round(value, 4) for value in t.tolist())

    return [
        RowPair(site, numbers(rows[j]), numbers(made[i]), round(float(distance), 4))
        for j, i, distance in zip(best.row, best.made, best.distance, strict=True)
    ]
