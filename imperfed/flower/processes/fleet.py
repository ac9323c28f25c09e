"""A site's session with the coordinator's SuperLink: what it is asked, and its answers.

Flower's own SuperNode does the same with a server on loopback, from which a process for every message fetches what
SuperNode has just fetched. Here a message is fetched once, and the answer sent from where it is.
"""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from imperfed.core.errors import ImperfedError
from imperfed.core.foreign_text import printable
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import RefusedError
from imperfed.flower.processes import adapter
from imperfed.flower.processes.adapter import FleetHttpClient, NodeAuthHttpInterceptor, RuntimeVersionHttpInterceptor
from imperfed.flower.processes.fetching import bound, fetch
from imperfed.flower.processes.pulse import HEARTBEAT, SHORTEST, LinkSpeed, Pulse
from imperfed.flower.site.site_folder import MOST_BYTES

HEARTBEAT_TIMEOUT = 20.0  # seconds; in Flower 5, which an upload on the same link easily delays
KEPT_FOR = 60.0  # seconds that a connection may be idle; the gate ends it after 75
AWAY = (502, 503, 504)


class FleetClient(FleetHttpClient):  # type: ignore[misc]
    """Flower's client of SuperLink; its calls show that the site is alive, and wait as long as the link needs."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None,
        key: EllipticCurvePrivateKey,
        pulse: Pulse,
        link: LinkSpeed,
        heard: Callable[[], object] = lambda: None,
    ) -> None:
        self.pulse, self.link, self.heard = pulse, link, heard
        verify = True if tls is None else tls
        signature = NodeAuthHttpInterceptor(key, key.public_key())
        super().__init__(
            f"{'http' if tls is None else 'https'}://{address}",
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperNode"), signature],
            verify=verify,
        )
        usual: httpx.Client = vars(self)["_client"]
        usual.close()  # it would make a new connection, with TLS, for every heartbeat
        self._client = httpx.Client(
            verify=verify,
            timeout=SHORTEST,
            limits=httpx.Limits(keepalive_expiry=KEPT_FOR),
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [bound]},
        )

    def _unary_unary(self, *, path: str, request: Any, timeout: float | None = None, **words: Any) -> Any:
        size, began = request.ByteSize(), time.monotonic()
        seconds = HEARTBEAT_TIMEOUT if path == HEARTBEAT else timeout or self.link.timeout(size)
        with self.pulse.call(path):
            try:
                reply = super()._unary_unary(path=path, request=request, timeout=seconds, **words)
            except httpx.TimeoutException:
                self.link.was_too_slow(size, max(seconds, time.monotonic() - began))
                raise
            except httpx.TransportError as error:
                if cut_short(error):  # Flower gives up whatever TLS complains about, and it would be in the message
                    raise httpx.ConnectError("the connection was cut while it was made") from error
                raise
        self.heard()
        self.link.took(size, time.monotonic() - began)
        return reply


def cut_short(error: BaseException | None) -> bool:
    """Return whether TLS ended because the connection did, as when the gate has too many new ones at a time."""
    while error is not None and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        error = error.__cause__ or error.__context__
    return error is not None


@dataclass
class NotTaken:
    """A message that was not taken, without its content, and why."""

    parcel: Parcel
    why: str


@dataclass
class Fleet:
    """A session that SuperLink has accepted."""

    client: Any
    node: Any
    most_bytes: int = MOST_BYTES
    """The most that a message may take."""

    def __post_init__(self) -> None:
        self.again = adapter.make_simple_http_retry_invoker()

    def call(self, what: Callable[[Any], Any], request: Any) -> Any:
        """Return the answer to a call; try again for as long as nothing answers."""
        return self.again.invoke(what, request)

    def receive(self) -> Parcel | NotTaken | None:
        """Return the next message to this site, with all its objects, or why it is not taken; None: there is none."""
        reply = self.call(self.client.PullMessages, adapter.PullMessagesRequest(node=self.node))
        if not reply.messages_list:
            return None
        parcel = Parcel(reply.messages_list[0], reply.message_object_trees[0])
        run = parcel.record.metadata.run_id
        pull = adapter.make_pull_object_fn_protobuf(lambda one: self.call(self.client.PullObject, one), self.node, run)
        why = ""
        try:
            fetch(parcel, pull, self.most_bytes)
        except RefusedError as error:
            why = f"a message was refused: {printable(str(error))} (most_bytes = {self.most_bytes})"
        if not parcel.whole:
            message = parcel.record.metadata.message_id
            request = adapter.ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=message)
            self.call(self.client.ConfirmMessageReceived, request)
        return NotTaken(parcel, why) if why else parcel

    def send(self, parcel: Parcel, seconds: float) -> None:
        """Send an answer, which took so many seconds."""
        request = adapter.PushMessagesRequest(
            node=self.node,
            messages_list=[parcel.record],
            message_object_trees=[parcel.tree],
            clientapp_runtime_list=[seconds],
        )
        reply = self.call(self.client.PushMessages, request)
        wanted = [(name, parcel.objects[name]) for name in parcel.objects if name in reply.objects_to_push]
        if wanted:
            run, session = parcel.record.metadata.run_id, reply.session_id
            push = adapter.make_push_object_fn_protobuf(
                lambda one: self.call(self.client.PushObject, one), self.node, run, session
            )
            adapter.push_object_contents_from_iterable(wanted, push)

    def heartbeat(self) -> bool:
        """Tell SuperLink that the site is there; return whether it was told."""
        interval = adapter.HEARTBEAT_DEFAULT_INTERVAL
        request = adapter.SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=interval)
        try:
            reply = self.client.SendNodeHeartbeat(request)
        except httpx.TransportError:
            return False
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                os.kill(os.getpid(), signal.SIGINT)
            if error.response.status_code in AWAY:
                return False
            raise
        if not reply.success:
            raise ImperfedError("SuperLink does not know this session")
        return True


@contextmanager
def session(client: Any, key: bytes, registers: bool, most_bytes: int = MOST_BYTES) -> Iterator[Fleet]:
    """Open a session, and sign off at the end. `registers`: without keys of a consortium, a site brings its own."""
    interval = adapter.HEARTBEAT_DEFAULT_INTERVAL
    fleet = Fleet(client, None, most_bytes)
    try:
        if registers:
            fleet.call(client.RegisterNode, adapter.RegisterNodeFleetRequest(public_key=key))
        request = adapter.ActivateNodeRequest(public_key=key, heartbeat_interval=interval)
        fleet.node = adapter.Node(node_id=fleet.call(client.ActivateNode, request).node_id)
    except httpx.HTTPStatusError as error:
        raise ImperfedError(reason(error)) from error
    beats = adapter.HeartbeatSender(fleet.heartbeat)
    beats.start()
    try:
        yield fleet
    finally:
        if beats.is_running:
            beats.stop()
        with suppress(httpx.HTTPError, RuntimeError):
            client.DeactivateNode(adapter.DeactivateNodeRequest(node_id=fleet.node.node_id))
            if registers:
                client.UnregisterNode(adapter.UnregisterNodeFleetRequest(node_id=fleet.node.node_id))


def reason(error: httpx.HTTPStatusError) -> str:
    """Return why SuperLink refused a call, in its words if it has any."""
    known = adapter.FlowerError.from_json(error.response.text)
    return printable(f"[code: {known.code}] {known.message}" if known else str(error))
