"""The gate's address: who may connect, how many connections there may be, and how long each may take to ask.

With keys, a connection begins with TLS in which both sides show a certificate of the consortium; whoever has none gets
no further than that, so that nothing of a stranger's reaches HTTP or SuperLink. Connections that have not asked for
anything yet are few, and when there are more the oldest gives way: idle ones shut out no one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.core.foreign_text import printable
from imperfed.flower.processes.gate import LONGEST_HEAD, PEER, Gate, warn
from imperfed.flower.processes.holding import Receive, Scope, Send
from imperfed.flower.processes.keys import CoordinatorKeys

HANDSHAKE = 10.0  # seconds for TLS
HEAD = 10.0  # seconds for the first request to begin, and for every head of a request to arrive whole
IDLE = 75  # seconds between two requests; a site asks every 10 s at least
NEW_PER_ADDRESS, NEW_IN_ALL = 32, 256  # connections that have not asked for anything yet
NEW_PER_SITE = 3  # and so many more for every site of the run, all of which may be behind one address
PER_SITE = 32  # connections of one certificate
CONNECTIONS = 1000
BACKLOG = 512
OUT_OF_FILES = 0.2  # seconds before accepting again

log = logging.getLogger("imperfed.gate")


class Newcomers:
    """Connections that have not asked for anything yet, oldest first."""

    def __init__(self, sites: int = 0) -> None:
        self.sites = sites
        self.waiting: dict[object, tuple[str, Callable[[], object]]] = {}

    def add(self, who: object, address: str, drop: Callable[[], object]) -> None:
        """Add one; those that are too many by now, at this address or in all, are dropped."""
        self.waiting[who] = address, drop
        own, more = [one for one, (other, _) in self.waiting.items() if other == address], NEW_PER_SITE * self.sites
        for oldest in own[: -NEW_PER_ADDRESS - more] or list(self.waiting)[: -NEW_IN_ALL - more]:
            where, end = self.waiting.pop(oldest)
            log.warning("a connection from %s gives way to newer ones: it has asked for nothing yet", where)
            end()

    def remove(self, who: object) -> None:
        """Remove one that has asked for something, or has gone."""
        self.waiting.pop(who, None)


class Visitor(H11Protocol):
    """A connection that speaks HTTP. With keys, its certificate says which site it belongs to."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(listener.config, listener.server_state, {}, loop)
        self.listener, self.site = listener, ""
        self.head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find out whose connection it is, and refuse it if it may not come in."""
        super().connection_made(transport)
        address = transport.get_extra_info("peername")[0]
        if self.listener.sites is not None:
            self.site = common_name(transport.get_extra_info("peercert"))
            self.app = partial(as_site, self.app, self.site)
            if why := self.listener.refusal(self.site):
                known = self.site if self.site in self.listener.sites else ""
                warn(known, "refused a connection from %s: %s", address, why)
                transport.abort()
                return
        self.listener.newcomers.add(self, address, transport.abort)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Take in data; the head of a request must be whole in time."""
        super().data_received(data)
        if self.cycle is not None:
            self.listener.newcomers.remove(self)
        begun = self.cycle is None or bool(self.conn.trailing_data[0])
        if self.conn.their_state is h11.IDLE and begun:
            self._watch_head()
        elif self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.listener.newcomers.remove(self)
        if self.head_timer is not None:
            self.head_timer.cancel()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD, self.transport.abort)


class Listener(uvicorn.Server):
    """uvicorn's server with a way to accept connections that counts and times them from the first packet on."""

    def __init__(self, config: uvicorn.Config, gate: Gate, sites: frozenset[str] | None) -> None:
        super().__init__(config)
        self.gate, self.sites = gate, sites
        """The names in the certificates of those who may connect; None: without keys, anyone may."""
        self.newcomers = Newcomers(len(sites or ()))
        self.handshakes: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        assert sockets
        self.servers = []
        for listening in sockets:
            listening.listen(BACKLOG)
            listening.setblocking(False)
        self.accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and close those there are."""
        for task in (*self.accepting, *self.handshakes):
            task.cancel()
        self.gate.let_go()
        await super().shutdown(sockets)

    def refusal(self, site: str) -> str:
        """Return why a site may not have another connection; empty if it may."""
        if self.sites is not None and site not in self.sites:
            return f"{printable(site, 80)!r} is not a site of this run's keys"
        open_ones = sum(isinstance(one, Visitor) and one.site == site for one in self.server_state.connections)
        return f"{site} has {open_ones - 1} connections already" if open_ones > PER_SITE else ""

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (address, *_) = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no more connections can be accepted: %s", error)
                await asyncio.sleep(OUT_OF_FILES)
                continue
            task = asyncio.create_task(self._receive(connection, address))
            self.handshakes.add(task)
            task.add_done_callback(self.handshakes.discard)
            self.newcomers.add(task, address, task.cancel)

    async def _receive(self, connection: socket.socket, address: str) -> None:
        """Turn a connection into a visitor, after the TLS handshake where there is one."""
        loop = asyncio.get_running_loop()
        task, tls = asyncio.current_task(), self.config.ssl
        wait = HANDSHAKE if tls else None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visitor = partial(Visitor, self, loop)
            await loop.connect_accepted_socket(visitor, connection, ssl=tls, ssl_handshake_timeout=wait)
        except OSError as error:  # of TLS as well
            log.warning("no connection with %s: %s", address, printable(str(error), 120))
            hang_up(connection)
        except asyncio.CancelledError:  # dropped, perhaps before it was looked at
            hang_up(connection)
            raise
        finally:
            self.newcomers.remove(task)


def hang_up(connection: socket.socket) -> None:
    """End a connection, and leave its descriptor to whoever holds it.

    asyncio may hold it until TLS has said goodbye. If it were closed here, its number would be given to another
    connection meanwhile, and both would use it.
    """
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


async def as_site(app: Any, site: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Call an application with the name of the site that asks."""
    await app({**scope, PEER: site}, receive, send)


def common_name(certificate: dict[str, Any] | None) -> str:
    """Return the name in a certificate that TLS has verified."""
    subject = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    return str(dict(subject).get("commonName", ""))


class GatewayServer:
    """A gate that listens on an address, in its own thread, from `open` to `close`."""

    def __init__(self, gate: Gate, host: str, port: int, keys: CoordinatorKeys | None = None) -> None:
        self.socket = bound(host, port)
        self.host, self.port = self.socket.getsockname()[:2]
        tls: dict[str, Any] = {}
        if keys is not None:
            tls = {"ssl_certfile": keys.certificate, "ssl_keyfile": keys.key, "ssl_ca_certs": str(keys.ca)}
            tls |= {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        config = uvicorn.Config(
            gate,
            http="h11",  # strict, and it passes the request line on unchanged
            loop="asyncio",
            h11_max_incomplete_event_size=LONGEST_HEAD,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=2,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            **tls,
        )
        self.server = Listener(config, gate, None if keys is None else frozenset(keys.sites))
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
        """Stop listening, whether or not it has begun to accept requests."""
        self.server.should_exit = True
        if self.thread.ident is not None:
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
