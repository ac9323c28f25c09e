"""When a site is asked again, and how long it is waited for: both follow from how long answers usually take.

A message can be lost for good although both ends work: SuperLink takes it for delivered as soon as it was fetched. So a
site that has not answered after a few times the usual time is sent the same message again. It starts from the same
state and gives the same answer (`site/last_answer.py`); whichever answer comes first is taken.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

TIMES = 4.0
"""After how many times the usual time a site is asked again."""
UNKNOWN_TIMES = 3.0
"""How much longer than the shortest time to wait before that, where nothing is known about the usual time."""
QUIET_TIMES = 8.0
"""How many times the usual time a site is waited for that was silent of late."""
IN_A_ROW, MOST_DOUBLED = 3, 6
"""Answers that a site gives in a row, after it was silent for the first time, until all patience is back."""
REMEMBERED = 64
"""Answers from which the usual time is known."""


@dataclass
class AnswerTimes:
    """How long answers have taken, by kind of message."""

    shortest: float
    """Seconds before which no site is asked again."""
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, deque[float]] = field(default_factory=dict)
    quiet: dict[str, int] = field(default_factory=dict)
    """The sites that were silent, and how many answers in a row each has yet to give until it is waited for again."""
    silences: dict[str, int] = field(default_factory=dict)
    """How often each site was silent."""

    def silent(self, site: str) -> None:
        """Note that a site did not answer. Each time it takes twice as many answers to make up for it."""
        self.silences[site] = self.silences.get(site, 0) + 1
        self.quiet[site] = IN_A_ROW * 2 ** min(self.silences[site] - 1, MOST_DOUBLED)

    def answered(self, site: str) -> None:
        """Note that a site has answered."""
        if self.quiet.get(site, 0) > 1:
            self.quiet[site] -= 1
        else:
            self.quiet.pop(site, None)

    def note(self, kind: str, seconds: float) -> None:
        """Remember how long an answer has taken."""
        self.taken.setdefault(kind, deque(maxlen=REMEMBERED)).append(seconds)

    def first_after(self, kind: str) -> float:
        """Return after how many seconds without an answer a site is asked again."""
        known = self.taken.get(kind)
        return max(self.shortest, TIMES * statistics.median(known)) if known else UNKNOWN_TIMES * self.shortest

    def patience(self, site: str, kind: str, most: float) -> float:
        """Return how many seconds to wait for a site's answer: `most`, but less for one that was silent of late.

        One that hangs, or answers now and then, would otherwise cost that long in every round or in every other.
        """
        known = self.taken.get(kind)
        if site not in self.quiet or not known:
            return most
        return min(most, max(TIMES * self.shortest, QUIET_TIMES * statistics.median(known)))


@dataclass
class Waiting:
    """The nodes that have yet to answer in one exchange: when each is asked again and when it is given up."""

    began: float
    until: dict[int, float]
    """By node: when it is given up."""
    first_after: float
    times: dict[int, int] = field(default_factory=dict)

    def answered(self, node: int) -> None:
        """Note that a node need not be asked again."""
        self.until.pop(node, None)

    def give_up(self, now: float) -> list[int]:
        """Return the nodes whose time is over, which are not waited for any more."""
        over = [node for node, until in self.until.items() if now > until]
        for node in over:
            del self.until[node]
        return over

    def due(self, now: float, nodes: Iterable[int]) -> list[int]:
        """Return those of the nodes that are to be asked again now; each time the pause before the next is doubled."""
        due = [n for n in nodes if n in self.until and now - self.began > self.first_after * (2 ** self._count(n) - 1)]
        for node in due:
            self.times[node] = self._count(node) + 1
        return due

    def _count(self, node: int) -> int:
        return self.times.get(node, 1)
