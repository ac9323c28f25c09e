"""Successive halving: all trials get a few rounds, the best third goes on, and so on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

KEEP = 3
"""One trial in so many goes on to the next rung."""
LEAST = 2
"""The fewest trials that go on, so that the last rung still compares something."""

Advance = Callable[[Sequence[int], int, bool], Mapping[int, float]]
"""Trains these trials up to a round, in the last rung or before; returns their scores, of those that did not fail."""


def kept(trials: int) -> int:
    """Return how many of so many trials go on."""
    return min(trials, max(LEAST, math.ceil(trials / KEEP)))


def halve(groups: Sequence[int], rungs: Sequence[int], advance: Advance) -> list[int]:
    """Return the trials from the best to the worst of those that reached the last rung, the first of equals first.

    `groups`: one for each trial. The best of every group go on, except to the last rung: trials of one group may learn
    faster than others'. Of the first group, which are methods as they are if run by their names, the best one always
    goes on: the search should not end below it.
    """
    alive = list(range(len(groups)))
    for rung, rounds in enumerate(rungs):
        last = rung == len(rungs) - 1
        scores = advance(alive, rounds, last)
        ranked = sorted((t for t in alive if t in scores), key=lambda t: (-scores[t], t))
        before_last = rung == len(rungs) - 2
        go_on = (
            {*_go_on(ranked, [0] * len(groups)), *_first_of(ranked, groups)} if before_last else _go_on(ranked, groups)
        )
        alive = ranked if last else sorted(go_on)
        if not alive:
            break
    return alive


def _first_of(ranked: Sequence[int], groups: Sequence[int]) -> list[int]:
    """Return the best trial of the first group, if it has one left."""
    return [t for t in ranked if groups[t] == 0][:1]


def _go_on(ranked: Sequence[int], groups: Sequence[int]) -> list[int]:
    own = [[t for t in ranked if groups[t] == group] for group in set(groups)]
    return [t for some in own for t in some[: kept(len(some))]]
