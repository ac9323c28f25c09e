"""The pulse of a site's node: whether it still asks for messages and sends heartbeats, and how slow its link is.

After an error that it does not expect, such as one flipped bit, a thread of Flower's may end while the process stays. A
process without a pulse ends itself, and `imperfed join` starts it again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HEARTBEAT = "/v1/fleet/send-node-heartbeat"
STILL = 90.0  # seconds without a call: longer than Flower ever pauses between two
LAPSED = 75.0  # seconds without a heartbeat, after which SuperLink takes the site for gone
RECENT = 15.0  # seconds
LOOK = 2.0
SHORTEST, LONGEST = 30.0, 600.0  # seconds to wait for the answer to a call
MARGIN = 4.0  # how many times longer than usual a call may take
LARGE = 2**16  # bytes from which on a call says something about the link


class Pulse:
    """What one node does, as seen from its calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.beat = self.heartbeat = self.answered = clock()
        self.calling = 0

    def tick(self) -> None:
        """Note that the main loop is running."""
        self.beat = self.clock()

    @contextmanager
    def call(self, path: str) -> Iterator[None]:
        """Note that a call begins and how it ends."""
        if path == HEARTBEAT:
            yield
            self.heartbeat = self.clock()
            return
        self.calling += 1
        try:
            yield
            self.answered = self.clock()
        finally:
            self.calling -= 1
            self.tick()

    def trouble(self) -> str:
        """Return why the process is of no use any more; empty while it is of use."""
        now = self.clock()
        if not self.calling and now - self.beat > STILL:
            return f"it has asked for nothing for {now - self.beat:.0f} s"
        if now - self.heartbeat > LAPSED and now - self.answered < RECENT:
            return f"it answers, but has sent no heartbeat for {now - self.heartbeat:.0f} s"
        return ""


class LinkSpeed:
    """How fast large calls are, and how long to wait for the next one accordingly."""

    def __init__(self) -> None:
        self.rate: float | None = None  # bytes per second

    def timeout(self, size: int) -> float:
        """Return the seconds to wait for the answer to a call of so many bytes."""
        if self.rate is None or size < LARGE:
            return SHORTEST
        return min(max(SHORTEST, MARGIN * size / self.rate), LONGEST)

    def took(self, size: int, seconds: float) -> None:
        """Learn from a call that was answered."""
        if size >= LARGE:
            rate = size / max(seconds, 1e-6)
            self.rate = rate if self.rate is None else (self.rate + rate) / 2

    def was_too_slow(self, size: int, seconds: float) -> None:
        """Learn from a call that was given up after so many seconds: the next one is given twice as long."""
        if size >= LARGE:
            self.rate = MARGIN * size / (2 * seconds)


def end_without(pulse: Pulse) -> None:
    """End this process as soon as it has no pulse."""

    def watch() -> None:
        while not (trouble := pulse.trouble()):
            time.sleep(LOOK)
        print(f"\nExit Code: 1\nthe process was stuck: {trouble}\n", flush=True)
        os._exit(1)

    threading.Thread(target=watch, name="pulse", daemon=True).start()
