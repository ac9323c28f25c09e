"""A bell between two processes of the coordinator, so that neither has to ask again and again whether there is mail.

The run rings when it has sent messages, and the gate then lets the sites ask; the gate rings when an answer has come.
A bell is a file that grows by one byte each time it is rung.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOK = 0.02  # seconds between two looks at the file
SENT, ANSWERED = "sent.bell", "answered.bell"
"""The names of the bells in Flower's folder of a run."""


@dataclass
class Bell:
    """One bell; whoever knows its path can ring it and hear it."""

    path: Path
    waiting: set[asyncio.Future[None]] = field(default_factory=set)
    listener: asyncio.Task[None] | None = None

    def ring(self) -> None:
        """Let all who wait go on."""
        with suppress(OSError), self.path.open("ab") as file:  # a full disk costs only time
            file.write(b".")

    def rung(self) -> int:
        """Return how often it was rung."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def wait(self, heard: int, seconds: float) -> None:
        """Wait until it was rung more than `heard` times, at most so long."""
        deadline = time.monotonic() + seconds
        while self.rung() == heard and time.monotonic() < deadline:
            time.sleep(min(LOOK, seconds))

    def next_ring(self, heard: int) -> asyncio.Future[None]:
        """Return what is done as soon as it was rung more than `heard` times; cancel it to wait no longer."""
        loop = asyncio.get_running_loop()
        ring: asyncio.Future[None] = loop.create_future()
        if self.rung() != heard:
            ring.set_result(None)
            return ring
        self.waiting.add(ring)
        ring.add_done_callback(self.waiting.discard)
        if self.listener is None or self.listener.done():
            self.listener = loop.create_task(self._listen(heard))
        return ring

    def let_go(self) -> None:
        """Let all who wait in this process go on, although it was not rung."""
        for ring in list(self.waiting):
            if not ring.done():
                ring.set_result(None)

    async def _listen(self, heard: int) -> None:
        """Look at the file for all who wait."""
        while self.waiting:
            await asyncio.sleep(LOOK)
            if self.rung() != heard:
                heard = self.rung()
                self.let_go()
