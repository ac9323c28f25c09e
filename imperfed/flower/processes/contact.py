"""Whether the coordinator answers: a site says when it does not any more, from time to time, and when it does again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from imperfed.core.errors import ImperfedError
from imperfed.flower.processes.coordinator_address import NOT_ACCEPTED

LISTEN = 15.0  # seconds between two tries while all is well
RETRY = 2.0  # while nothing answers
REFUSED_FOR = 75.0  # seconds after which a coordinator that ends every connection is not just busy
FIRST_REPEAT, LONGEST_REPEAT = 60.0, 600.0


class Reachable(Protocol):
    """What can be knocked at."""

    @property
    def address(self) -> str:
        """Host and port."""

    def knock(self) -> str:
        """Return why nothing answers; empty if something does."""


class Contact:
    """The contact to one coordinator."""

    def __init__(
        self, way: Reachable, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.way, self.tell, self.clock = way, tell, clock
        self.met = False
        self.lost: float | None = None
        self.refused: float | None = None
        self.next_try = self.next_word = 0.0
        self.repeat = FIRST_REPEAT

    def made(self) -> bool:
        """Return whether the coordinator answers now; say so if that is news.

        At the first contact another server in its place is an error. Later the site has met the right one and waits.
        """
        try:
            why = self.way.knock()
        except ImperfedError as error:
            if not self.met:
                raise
            why = str(error)
        now = self.clock()
        self._refuse_for_long(why, now)
        self.next_try = now + (RETRY if why else LISTEN)
        if not why:
            self._found(now)
        elif self.lost is None:
            self.lost, self.repeat, self.next_word = now, FIRST_REPEAT, now + FIRST_REPEAT
            self.tell(
                f"no answer at {self.way.address} {'any more' if self.met else 'yet'} ({why}); trying again until "
                "there is one"
            )
        elif now >= self.next_word:
            self.repeat = min(2 * self.repeat, LONGEST_REPEAT)
            self.next_word = now + self.repeat
            self.tell(f"still no answer at {self.way.address} after {now - self.lost:.0f} s ({why})")
        return not why

    def _refuse_for_long(self, why: str, now: float) -> None:
        """Raise an error if the coordinator has ended all connections for long, and has never answered."""
        if why != NOT_ACCEPTED or self.met:
            self.refused = None
            return
        self.refused = now if self.refused is None else self.refused
        if now - self.refused > REFUSED_FOR:
            raise ImperfedError(
                f"{self.way.address} does not accept this site's certificate: the coordinator must serve with the keys "
                "that were made together with it"
            )

    def listen(self) -> None:
        """Try whether the coordinator answers, if it is time to."""
        if self.clock() >= self.next_try:
            self.made()

    def _found(self, now: float) -> None:
        if self.lost is not None and self.met:
            self.tell(f"{self.way.address} answers again, after {now - self.lost:.0f} s")
        self.met, self.lost = True, None
