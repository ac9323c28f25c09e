"""The gate: the only way from the sites' network to the coordinator's SuperLink.

SuperLink serves three interfaces on one port, two of them without authentication: whoever reaches `/v1/control/` may
register a key or submit a run. So SuperLink listens on loopback, answers our own calls only (`own_calls.py`), and this
gate listens on the public address. It terminates
TLS, checks each request, and sends a new request of its own for what it lets through: a POST to one of the few paths
that SuperNode needs, with a stated length below a limit. The caller's request line is not forwarded; of the headers,
only those that SuperNode sends are. `gateway.py` decides who may connect at all.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from imperfed.flower.processes.allowance import LONGEST_BODY, Allowance
from imperfed.flower.processes.bell import Bell
from imperfed.flower.processes.coordinator_address import CLOCK
from imperfed.flower.processes.holding import Holding, Receive, Scope, Send, is_empty
from imperfed.flower.processes.own_calls import HEADER as OWN

PULL, PUSH = b"/v1/fleet/pull-messages", b"/v1/fleet/push-messages"
PUSHES = (PUSH, b"/v1/fleet/push-object")
OPEN = frozenset(
    f"/v1/fleet/{call}".encode()
    for call in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
SELF_REGISTRATION = frozenset({b"/v1/fleet/register-node", b"/v1/fleet/unregister-node"})  # for sites without keys
HEADERS = frozenset({b"content-type", b"accept", b"content-length"})
PEER = "site"
"""In a request's scope: the name in the certificate of the site that asks; absent without keys."""
LONGEST_RECORD = 2**20  # the record of one message, which SuperLink unfolds
LONGEST_HEAD = 16 * 2**10
SECONDS = 60.0  # without a byte from either side
KEPT, KEPT_FOR = 128, 4.0  # connections to SuperLink, and seconds; it closes them itself after 5
LINES, MINUTE = 30, 60.0  # in the log

log = logging.getLogger("imperfed.gate")


class Seldom(logging.Filter):
    """So many lines a minute about each site, and about all strangers together; then, how many were left out.

    A line about a site has its name as `site`: neither strangers nor another site can hide what it does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, tuple[float, int]] = {}
        """By site, with an empty name for strangers: when the minute began, and the number of its lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now, about = time.monotonic(), str(getattr(record, "site", ""))
        began, lines = self.lines.get(about, (now, 0))
        if now - began > MINUTE:
            if lines > LINES:
                record.msg, record.args = f"{record.getMessage()} ({lines - LINES} lines before it were left out)", ()
            began, lines = now, 0
        self.lines[about] = began, lines + 1
        return lines < LINES


def warn(site: str, text: str, *words: object) -> None:
    """Write a line to the log about a site, or about strangers where there is no name."""
    log.warning(text, *words, extra={"site": site})


log.addFilter(Seldom())


class Gate:
    """The rules, as an ASGI application before an upstream address (`https://127.0.0.1:PORT`)."""

    def __init__(
        self,
        upstream: str,
        ca: Path | None,
        keyless: bool = False,
        sent: Bell | None = None,
        answered: Bell | None = None,
        word: str = "",
    ) -> None:
        """Know the bells, and the word by which SuperLink knows the coordinator's own calls."""
        self.upstream, self.answered, self.word = upstream, answered, word
        self.holding = None if sent is None else Holding(sent)
        self.allowance = Allowance()
        self.paths = OPEN | SELF_REGISTRATION if keyless else OPEN
        verify = ssl.create_default_context(cafile=str(ca)) if ca else False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_FOR)
        # trust_env: a proxy named in the environment must not see traffic meant for loopback
        self.client = httpx.AsyncClient(
            verify=verify, timeout=SECONDS, limits=limits, trust_env=False, headers={"accept-encoding": "identity"}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and forward it."""
        if scope["type"] != "http":
            return
        if (scope["method"], scope["raw_path"]) == ("GET", CLOCK):  # the server adds the date
            await answer(send, 200, "")
            return
        site = scope.get(PEER, "")
        who = site or (scope.get("client") or ("?",))[0]
        if pause := self.allowance.pause(site):
            await asyncio.sleep(pause)
        if refusal := self.refusal(scope):
            warn(site, "refused %s %s from %s: %s", scope["method"], printable(scope["raw_path"]), who, refusal[1])
            await answer(send, *refusal)
            return
        length, pushes = stated_length(scope), scope["raw_path"] in PUSHES
        if too_much := self.allowance.refusal(site, length, pushes):
            warn(site, "%s from %s", too_much[1], who)
            await answer(send, *too_much)
            return
        with self.allowance.passing(site, length, pushes):
            status = await self._pass_on(scope, receive, send)
        if pushes and status == 200 and self.answered is not None:
            self.answered.ring()

    def let_go(self) -> None:
        """Answer the sites that wait for a message: the gate closes."""
        if self.holding is not None:
            self.holding.let_go()

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Forward a request that may pass; say so if there is no answer. Return the status of the answer."""
        site, status = scope.get(PEER, ""), 0

        async def pass_back(message: Scope) -> None:
            nonlocal status
            status = message.get("status", status)
            self.allowance.given(site, len(message.get("body", b"")))
            await send(message)

        try:
            if scope["raw_path"] == PULL:
                await self._pull(site, scope, receive, pass_back)
            else:
                await self.forward(scope, receive, pass_back)
            return status
        except httpx.HTTPError as error:
            warn(site, "no answer behind the gate: %r", error)
            failure = 503, "the coordinator does not answer"
        except TimeoutError:
            failure = 408, "the request did not arrive in time"
        if not status:  # otherwise the caller sees the answer cut short, since the connection is closed
            await answer(send, *failure)
        return failure[0]

    async def _pull(self, site: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the question whether there is a message."""

        async def noted(message: Scope) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200 and not is_empty(message):
                self.allowance.message(site)
            await send(message)

        if self.holding is None:
            await self.forward(scope, receive, noted)
        elif not await self.holding.nothing_new(site, receive, send):
            await self.forward(scope, receive, self.holding.held_back(site, receive, noted))

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason if a request may not pass."""
        # raw_path is the request line's path, undecoded: the comparison leaves nothing to interpret
        if scope["raw_path"] not in self.paths or scope["query_string"]:
            return 404, "no such path"
        if scope["method"] != "POST":
            return 405, "POST only"
        names = [name for name, _ in scope["headers"]]
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if b"transfer-encoding" in names or b"upgrade" in names or len(lengths) != 1 or not lengths[0].isdigit():
            return 411, "a length must be stated, once"
        longest = LONGEST_RECORD if scope["raw_path"] == PUSH else LONGEST_BODY
        if int(lengths[0]) > longest:
            return 413, f"more than {longest} bytes"
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEAD:
            return 431, f"headers of more than {LONGEST_HEAD} bytes"
        return None

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send our own request upstream and stream the answer back."""
        headers = [(k, v) for k, v in scope["headers"] if k in HEADERS or k.startswith(b"flwr-")]
        headers.append((OWN.encode(), self.word.encode()))
        url = self.upstream + scope["raw_path"].decode("ascii")
        async with self.client.stream("POST", url, headers=headers, content=body(receive)) as reply:
            kept = [(k.lower(), v) for k, v in reply.headers.raw if k.lower() in HEADERS or k.lower()[:5] == b"flwr-"]
            await send({"type": "http.response.start", "status": reply.status_code, "headers": kept})
            async for piece in reply.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def body(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a request's body as it arrives; its stated length was checked, and h11 holds the sender to it."""
    more = True
    while more:
        message = await asyncio.wait_for(receive(), SECONDS)
        if message["type"] == "http.disconnect":
            raise httpx.RemoteProtocolError("the sender disconnected")
        more = message.get("more_body", False)
        yield message.get("body", b"")


def stated_length(scope: Scope) -> int:
    """Return the length of a request's body, which was found to be stated once."""
    return next(int(value) for name, value in scope["headers"] if name == b"content-length")


async def answer(send: Send, status: int, reason: str) -> None:
    """Send a short answer from the gate itself."""
    text = reason.encode()
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def printable(path: bytes) -> str:
    """Return a path for the log: truncated, and without control characters."""
    return ascii(path[:80].decode("latin-1"))
