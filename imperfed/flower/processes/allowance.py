"""How much the sites may send: bytes at the same time and in answer to one message, and requests in a second.

SuperLink keeps in memory what is pushed until the coordinator has fetched it, so nobody may push without end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LONGEST_BODY = 16 * 2**20  # arrays travel in pieces of 5 MiB
OF_ONE_SITE, IN_ALL = 4 * LONGEST_BODY, 32 * LONGEST_BODY  # bytes of bodies on their way at the same time
ANSWER = 2 * 2**30
"""Bytes of any answer: more than `largest_answer` allows for a million rows."""
TIMES = 16
"""And so many times the bytes of the message: twice what an answer may take, since a push may have to be repeated."""
AT_ONCE, PER_SECOND = 1000, 100
"""Requests of one site: so many at once, and then so many per second. A message of many pieces takes one for each; a
site that waits for a message asks every ten seconds."""


@dataclass
class Allowance:
    """What is on its way to SuperLink, and what each site has pushed since it last fetched a message."""

    on_the_way: Counter[str] = field(default_factory=Counter)
    pushed: Counter[str] = field(default_factory=Counter)
    fetched: Counter[str] = field(default_factory=Counter)
    due: dict[str, float] = field(default_factory=dict)
    """When each site would have made its requests so far at the highest rate."""
    clock: Callable[[], float] = time.monotonic

    def pause(self, site: str) -> float:
        """Count a request; return how many seconds it has to wait, since its site makes too many."""
        if not site:  # without keys, all callers would be one
            return 0.0
        now = self.clock()
        self.due[site] = max(self.due.get(site, 0.0), now - AT_ONCE / PER_SECOND) + 1 / PER_SECOND
        return max(self.due[site] - now, 0.0)

    def refusal(self, site: str, length: int, pushes: bool) -> tuple[int, str] | None:
        """Return status and reason if a body may not pass now; without keys, all callers are one site."""
        if self.on_the_way.total() + length > IN_ALL or (site and self.on_the_way[site] + length > OF_ONE_SITE):
            return 503, "too much at once"  # the site tries again
        if pushes and site and self.pushed[site] + length > ANSWER + TIMES * self.fetched[site]:
            return 413, "more than an answer to the last message may take"
        return None

    @contextmanager
    def passing(self, site: str, length: int, pushes: bool) -> Iterator[None]:
        """Count a body while it is passed on, and afterwards if it stays."""
        self.on_the_way[site] += length
        self.pushed[site] += length if pushes else 0
        try:
            yield
        finally:
            self.on_the_way[site] -= length

    def message(self, site: str) -> None:
        """Note that a site was given a message."""
        self.pushed[site] = self.fetched[site] = 0

    def given(self, site: str, length: int) -> None:
        """Note that a site was given so many bytes."""
        self.fetched[site] += length
