"""Answers to sites that ask for a message: the answer that there is none is held back until one is sent.

So a site learns of a message at once without asking again and again, and a hundred idle sites cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from imperfed.flower.processes.bell import Bell

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

LONGEST_HOLD = 10.0  # seconds
NOTHING = [(b"content-type", b"application/protobuf"), (b"content-length", b"0")]


@dataclass
class Holding:
    """The sites that wait for a message."""

    sent: Bell
    """Rung whenever the run has sent messages."""
    told: dict[str, int] = field(default_factory=dict)
    """By site: how often the bell had been rung when SuperLink last had nothing for it."""
    closing: bool = False

    async def nothing_new(self, site: str, receive: Receive, send: Send) -> bool:
        """Answer a site without asking SuperLink if nothing was sent since SuperLink had nothing for it.

        Once only: then SuperLink is asked again, whatever the bell says.
        """
        heard = self.sent.rung()
        if not site or self.told.pop(site, None) != heard:
            return False
        while (await receive()).get("more_body", False):
            pass
        await self._hold(receive, heard)
        await send({"type": "http.response.start", "status": 200, "headers": NOTHING})
        await send({"type": "http.response.body", "body": b""})
        return True

    def held_back(self, site: str, receive: Receive, send: Send) -> Send:
        """Return a `send` that waits with an empty answer; to be called before SuperLink is asked.

        The site then asks again, rather than being given the message: SuperLink takes a message that was fetched for
        delivered, and the site may be gone meanwhile.
        """
        heard = self.sent.rung()

        async def send_later(message: Scope) -> None:
            if is_empty(message):
                self.told[site] = heard
                await self._hold(receive, heard)
            await send(message)

        return send_later

    def let_go(self) -> None:
        """Answer all who wait, and whoever asks from now on, at once: the gate closes."""
        self.closing = True
        self.sent.let_go()

    async def _hold(self, receive: Receive, heard: int) -> None:
        """Wait until messages are sent, the caller has gone, or it has taken long enough."""
        if self.closing:
            return
        gone: asyncio.Future[Any] = asyncio.ensure_future(receive())
        ring: asyncio.Future[Any] = self.sent.next_ring(heard)
        await asyncio.wait({gone, ring}, timeout=LONGEST_HOLD, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        ring.cancel()


def is_empty(message: Scope) -> bool:
    """Return whether this begins an answer without a body, which is how SuperLink says that it has no message."""
    start = message["type"] == "http.response.start" and message["status"] == 200
    return start and (b"content-length", b"0") in message["headers"]
