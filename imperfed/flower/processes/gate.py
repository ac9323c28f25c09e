"""The gate: the only door between the sites' network and the coordinator's SuperLink.

SuperLink serves three interfaces on one port and asks nobody who they are on two of them: whoever reaches
`/v1/control/` may let a key in or submit a run. So SuperLink listens on loopback, and this gate on the public address.
It ends TLS, judges each request, and makes a new one of its own of what it lets through: a POST to one of the few paths
that SuperNode needs, with a stated length below a limit. Nothing of the caller's request line travels on, and of the
headers those that SuperNode sends.
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
SELF_REGISTRATION = frozenset({b"/v1/fleet/register-node", b"/v1/fleet/unregister-node"})  # of sites without keys
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
        # trust_env: a proxy named in the environment must not get to see what is meant for loopback
        self.client = httpx.AsyncClient(
            verify=verify, timeout=SECONDS, limits=limits, trust_env=False, headers={"accept-encoding": "identity"}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one request and pass it on."""
        if scope["type"] != "http":
            return
        if refusal := self.refusal(scope):
            who = (scope.get("client") or ("?",))[0]
            log.warning("refused %s %s from %s: %s", scope["method"], printable(scope["raw_path"]), who, refusal[1])
            await answer(send, *refusal)
            return
        begun = False

        async def passed_back(message: Scope) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.forward(scope, receive, passed_back)
            return
        except httpx.HTTPError as error:
            log.warning("no answer behind the gate: %r", error)
            failure = 503, "the coordinator does not answer"
        except TimeoutError:
            failure = 408, "the request did not arrive in time"
        if not begun:  # of an answer that has begun the caller sees that it is cut short: the connection is closed
            await answer(send, *failure)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason if a request may not pass."""
        # raw_path is what stood on the request line, undecoded: the comparison leaves nothing to interpret
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
        """Ask upstream in a request of our own and stream the answer back."""
        headers = [(k, v) for k, v in scope["headers"] if k in HEADERS or k.startswith(b"flwr-")]
        url = self.upstream + scope["raw_path"].decode("ascii")
        async with self.client.stream("POST", url, headers=headers, content=body(receive)) as reply:
            kept = [(k.lower(), v) for k, v in reply.headers.raw if k.lower() in HEADERS or k.lower()[:5] == b"flwr-"]
            await send({"type": "http.response.start", "status": reply.status_code, "headers": kept})
            async for piece in reply.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def body(receive: Receive) -> AsyncIterator[bytes]:
    """The pieces of a request's body as they come; its stated length was checked, and h11 holds the sender to it."""
    more = True
    while more:
        message = await asyncio.wait_for(receive(), SECONDS)
        if message["type"] == "http.disconnect":
            raise httpx.RemoteProtocolError("the sender went away")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def answer(send: Send, status: int, reason: str) -> None:
    """A short answer of the gate's own."""
    text = reason.encode()
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def printable(path: bytes) -> str:
    """A path for the log: cut, and without anything a terminal would act upon."""
    return ascii(path[:80].decode("latin-1"))


class GatewayServer:
    """A gate that stands at an address, in a thread of its own, from `open` to `close`."""

    def __init__(self, gate: Gate, host: str, port: int, certificate: Path | None, key: Path | None) -> None:
        self.socket = bound(host, port)
        self.host, self.port = self.socket.getsockname()[:2]
        config = uvicorn.Config(
            gate,
            http="h11",  # strict, and it gives the request line as it stood
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
        """Begin to let requests through."""
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
    """A listening address, or an error that names it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error.strerror}); choose --host and --port") from error
    return listening
