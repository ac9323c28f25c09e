"""The gate: the only way from the sites' network to the coordinator's SuperLink.

SuperLink serves three interfaces on one port, two of them without authentication: whoever reaches `/v1/control/` may
register a key or submit a run. So SuperLink listens on loopback, and this gate on the public address. It terminates
TLS, checks each request, and sends a new request of its own for what it lets through: a POST to one of the few paths
that SuperNode needs, with a stated length below a limit. The caller's request line is not forwarded; of the headers,
only those that SuperNode sends are.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.flower.processes.coordinator_address import CLOCK

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

OPEN = frozenset(
    f"/v1/fleet/{call}".encode()
    for call in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
SELF_REGISTRATION = frozenset({b"/v1/fleet/register-node", b"/v1/fleet/unregister-node"})  # for sites without keys
HEADERS = frozenset({b"content-type", b"accept", b"content-length"})
LONGEST_BODY = 64 * 2**20  # arrays travel in pieces of 5 MiB
LONGEST_HEAD = 16 * 2**10
SECONDS = 60.0  # without a byte from either side
CONNECTIONS = 1000

log = logging.getLogger("imperfed.gate")


class Gate:
    """The rules, as an ASGI application before an upstream address (`https://127.0.0.1:PORT`)."""

    def __init__(self, upstream: str, ca: Path | None, keyless: bool = False) -> None:
        self.upstream = upstream
        self.paths = OPEN | SELF_REGISTRATION if keyless else OPEN
        verify = ssl.create_default_context(cafile=str(ca)) if ca else False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
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
        if refusal := self.refusal(scope):
            who = (scope.get("client") or ("?",))[0]
            log.warning("refused %s %s from %s: %s", scope["method"], printable(scope["raw_path"]), who, refusal[1])
            await answer(send, *refusal)
            return
        started = False

        async def pass_back(message: Scope) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.forward(scope, receive, pass_back)
            return
        except httpx.HTTPError as error:
            log.warning("no answer behind the gate: %r", error)
            failure = 503, "the coordinator does not answer"
        except TimeoutError:
            failure = 408, "the request did not arrive in time"
        if not started:  # otherwise the caller sees the answer cut short, since the connection is closed
            await answer(send, *failure)

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
        if int(lengths[0]) > LONGEST_BODY:
            return 413, f"more than {LONGEST_BODY} bytes"
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEAD:
            return 431, f"headers of more than {LONGEST_HEAD} bytes"
        return None

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send our own request upstream and stream the answer back."""
        headers = [(k, v) for k, v in scope["headers"] if k in HEADERS or k.startswith(b"flwr-")]
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


class GatewayServer:
    """A gate that listens on an address, in its own thread, from `open` to `close`."""

    def __init__(self, gate: Gate, host: str, port: int, certificate: Path | None, key: Path | None) -> None:
        self.socket = bound(host, port)
        self.host, self.port = self.socket.getsockname()[:2]
        config = uvicorn.Config(
            gate,
            http="h11",  # strict, and it passes the request line on unchanged
            h11_max_incomplete_event_size=LONGEST_HEAD,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), name="gate", daemon=True)

    def open(self) -> GatewayServer:
        """Start to accept requests."""
        self.thread.start()
        while not self.server.started:
            if not self.thread.is_alive():
                raise ImperfedError(f"the gate at {self.host}:{self.port} could not be opened")
            time.sleep(0.02)
        return self

    def close(self) -> None:
        """Stop listening."""
        self.server.should_exit = True
        self.thread.join(timeout=5)
        self.socket.close()


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; raise an error that names the address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error.strerror}); choose --host and --port") from error
    return listening
