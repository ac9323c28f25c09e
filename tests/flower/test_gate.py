"""The gate: what passes arrives unchanged, and nothing else arrives at all, however it is written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import httpx

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.flower.processes import allowance, contact, gateway, holding, supernode
from imperfed.flower.processes import gate as gate_module
from imperfed.flower.processes.bell import Bell
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.gate import Gate, Seldom
from imperfed.flower.processes.gateway import GatewayServer, hang_up
from imperfed.flower.processes.holding import Scope
from imperfed.flower.processes.keys import CoordinatorKeys, SiteKeys, make_keys
from imperfed.flower.processes.own_calls import HEADER

PULL = "/v1/fleet/pull-messages"


class Upstream(ThreadingHTTPServer):
    """Stands where SuperLink stands and writes down everything that reaches it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream
    status = 200

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if self.parse_request():
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {k.lower(): v for k, v in self.headers.items()}
            self.server.seen.append((self.requestline, headers, body))
            self.send_response(self.status)
            self.send_header("content-type", "application/protobuf")
            self.send_header("flwr-note", "kept")
            self.send_header("set-cookie", "dropped")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[::-1])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def recorder() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def lines_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have logged, this one may log."""
    monkeypatch.setattr(gate_module.log, "filters", [Seldom()])


@pytest.fixture
def upstream(recorder: Upstream) -> Upstream:
    recorder.seen.clear()
    return recorder


@pytest.fixture(scope="module")
def door(recorder: Upstream) -> Iterator[GatewayServer]:
    upstream = recorder
    opened = GatewayServer(Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None), "127.0.0.1", 0).open()
    yield opened
    opened.close()


def speak(door: GatewayServer, text: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Everything the gate answers to these bytes until it closes or falls silent."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", door.port), timeout=5)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
    with connection:
        connection.sendall(text)
        connection.settimeout(0.4)
        heard = b""
        try:
            while piece := connection.recv(65536):
                heard += piece
        except TimeoutError:
            pass
        return heard


def post(path: str, body: bytes = b"hello", extra: str = "", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: gate\r\nContent-Length: {len(body)}\r\n{extra}Connection: close\r\n\r\n"
    return head.encode("latin-1") + body


def test_what_passes_arrives_as_a_request_of_the_gates_own(door: GatewayServer, upstream: Upstream) -> None:
    extra = "flwr-signature: s\r\nX-Forwarded-For: 1.2.3.4\r\nAuthorization: b\r\nflwr-superexec-ts: 1\r\nCookie: c\r\n"
    reply = speak(door, post(PULL, b"some message", extra))
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"egassem emos"
    assert b"flwr-note: kept" in head
    assert b"set-cookie" not in head
    [(line, headers, arrived)] = upstream.seen
    assert line == f"POST {PULL} HTTP/1.1"
    assert arrived == b"some message"
    assert headers["flwr-signature"] == "s"
    assert headers["host"] == f"127.0.0.1:{upstream.server_port}"
    assert not {"x-forwarded-for", "authorization", "cookie"} & set(headers)


TRICKS = [
    "/v1/control/list-runs",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/health",
    "/docs",
    "/openapi.json",
    "/",
    "*",
    "/v1/fleet/",
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/pull-messages/../../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol%2flist-runs",
    "/v1/fleet/%2e%2e%2fcontrol%2flist-runs",
    "/v1/fleet%2f..%2fcontrol/list-runs",
    "/v1/fleet/..;/control/list-runs",
    "/v1/fleet\\..\\control\\list-runs",
    "//v1/fleet/pull-messages",
    "/v1//fleet/pull-messages",
    "/v1/fleet/pull-messages/",
    "/v1/fleet/pull-messages?x=/v1/control/list-runs",
    "/v1/fleet/pull-messages#/v1/control",
    "/v1/fleet/pull-messages;x",
    "/v1/fleet/pull%2dmessages",
    "/V1/Fleet/Pull-Messages",
    "/v1/fleet/pull-messages%00",
    "/v1/fleet/pull-messages%0d%0aX:y",
    "http://127.0.0.1/v1/control/list-runs",
    "http://127.0.0.1/v1/fleet/pull-messages",
    "http://gate/v1/fleet/pull-messages@127.0.0.1/v1/control/list-runs",
    "127.0.0.1:80",
]


@pytest.mark.parametrize("number", range(len(TRICKS)))
def test_no_other_path_arrives(door: GatewayServer, upstream: Upstream, number: int) -> None:
    reply = speak(door, post(TRICKS[number]))
    assert reply.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), reply
    assert upstream.seen == []


INNER = "POST /v1/control/list-runs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
SMUGGLED = {
    "length and chunks": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\n{CHUNKED}\r\n0\r\n\r\n{INNER}",
    "chunks and length": f"POST {PULL} HTTP/1.1\r\nHost: g\r\n{CHUNKED}Content-Length: 4\r\n\r\n0\r\n\r\n{INNER}",
    "chunks alone": f"POST {PULL} HTTP/1.1\r\nHost: g\r\n{CHUNKED}\r\n0\r\n\r\n{INNER}",
    "disguised chunks": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{INNER}",
    "spaced name": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length : 4\r\n\r\n0\r\n\r\n{INNER}",
    "two lengths": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\n{INNER}",
    "signed length": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: +0\r\n\r\n{INNER}",
    "no length": f"POST {PULL} HTTP/1.1\r\nHost: g\r\n\r\n{INNER}",
    "bare line feeds": f"POST {PULL} HTTP/1.1\nHost: g\nContent-Length: 0\n\n{INNER}",
    "folded header": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nA: b\r\n {CHUNKED}Content-Length: 0\r\n\r\n{INNER}",
    "line in a header": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nflwr-x: a\rPOST /v1/x\r\nContent-Length: 0\r\n\r\n",
    "pipelined": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n{INNER}",
    "older": "POST /v1/control/list-runs HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
    "oldest": "GET /v1/control/list-runs\r\n",
    "upgrade": f"POST {PULL} HTTP/1.1\r\nHost: g\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
    "HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("trick", sorted(SMUGGLED))
def test_no_request_hides_in_another(door: GatewayServer, upstream: Upstream, trick: str) -> None:
    speak(door, SMUGGLED[trick].encode())
    assert all(line == f"POST {PULL} HTTP/1.1" for line, _, _ in upstream.seen)
    assert all("transfer-encoding" not in headers for _, headers, _ in upstream.seen)


@pytest.mark.parametrize("method", ["GET", "PUT", "CONNECT", "OPTIONS", "post"])
def test_posts_only(door: GatewayServer, upstream: Upstream, method: str) -> None:
    assert b"200" not in speak(door, post(PULL, method=method))[:15]
    assert upstream.seen == []


def test_sizes_are_limited(door: GatewayServer, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "LONGEST_BODY", 10)
    assert speak(door, post(PULL, b"x" * 10)).startswith(b"HTTP/1.1 200")
    assert speak(door, post(PULL, b"x" * 11)).startswith(b"HTTP/1.1 413")
    assert speak(door, post(PULL, extra=f"A: {'x' * 40000}\r\n")).startswith(b"HTTP/1.1 431")
    assert len(upstream.seen) == 1


def test_large_bodies_pass_whole(door: GatewayServer, upstream: Upstream) -> None:
    body = bytes(range(256)) * 4 * 2**12
    assert speak(door, post(PULL, body)).partition(b"\r\n\r\n")[2] == body[::-1]


def test_a_body_that_never_comes_ends_in_time(
    door: GatewayServer, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "SECONDS", 0.2)
    head = f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nhalf".encode()
    assert speak(door, head).startswith(b"HTTP/1.1 408")


def test_a_silent_superlink_is_said_to_be_one() -> None:
    door = GatewayServer(Gate("http://127.0.0.1:1", ca=None), "127.0.0.1", 0).open()
    assert speak(door, post(PULL)).startswith(b"HTTP/1.1 503")
    door.close()


class CutShort(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"half"
        raise httpx.ReadError("gone")


def test_an_answer_that_is_cut_short_gets_no_second_head() -> None:
    gate, sent = Gate("http://127.0.0.1:1", ca=None), []
    gate.client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=CutShort())))
    scope = {"type": "http", "method": "POST", "raw_path": PULL.encode(), "query_string": b""}

    async def receive() -> Scope:
        return {"type": "http.request", "body": b""}

    async def send(message: Scope) -> None:
        sent.append(message)

    asyncio.run(gate(scope | {"headers": [(b"content-length", b"0")]}, receive, send))
    assert [message.get("status", message.get("body")) for message in sent] == [200, b"half"]
    assert sent[-1]["more_body"]


def test_sites_without_keys_may_register_themselves_where_that_was_asked_for(upstream: Upstream) -> None:
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None, keyless=True)
    door = GatewayServer(gate, "127.0.0.1", 0).open()
    assert speak(door, post("/v1/fleet/register-node")).startswith(b"HTTP/1.1 200")
    assert speak(door, post("/v1/control/register-node")).startswith(b"HTTP/1.1 404")
    door.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("consortium") / "keys"
    make_keys(out, ["a", "b"], ["127.0.0.1"], days=1)
    return out


@pytest.fixture
def guarded(upstream: Upstream, keys: Path) -> Iterator[GatewayServer]:
    """A gate that only site a may pass: the key of b is not among the coordinator's any more."""
    own = CoordinatorKeys.read(keys / "coordinator")
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None)
    opened = GatewayServer(gate, "127.0.0.1", 0, replace(own, sites={"a": own.sites["a"]})).open()
    yield opened
    opened.close()


def test_over_tls(guarded: GatewayServer, keys: Path) -> None:
    assert speak(guarded, post(PULL)) == b""  # plain text is not answered
    tls = SiteKeys.read(keys / "site-a").tls()
    assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")
    assert speak(guarded, post("/v1/control/list-runs"), tls).startswith(b"HTTP/1.1 404")
    with pytest.raises(ssl.SSLCertVerificationError):
        speak(guarded, post(PULL), ssl.create_default_context())


def unheard(door: GatewayServer, text: bytes, tls: ssl.SSLContext) -> bool:
    """Whether the gate ends a connection, or answers nothing."""
    with contextlib.suppress(OSError):
        return speak(door, text, tls) == b""
    return True


def stranger(keys: Path) -> ssl.SSLContext:
    """Someone who knows the coordinator and has no certificate."""
    return ssl.create_default_context(cafile=str(keys / "site-a" / "ca.crt"))


def test_without_a_certificate_nothing_is_heard(guarded: GatewayServer, upstream: Upstream, keys: Path) -> None:
    assert unheard(guarded, post(PULL, b"x" * 2**20), stranger(keys))
    assert upstream.seen == []


def test_a_certificate_of_another_authority_is_refused(
    guarded: GatewayServer, upstream: Upstream, keys: Path, tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", ["a"], ["127.0.0.1"], days=1)
    other = SiteKeys.read(tmp_path / "keys" / "site-a")
    tls = stranger(keys)
    tls.load_cert_chain(other.client_certificate, other.client_key)
    assert unheard(guarded, post(PULL), tls)
    assert upstream.seen == []


def test_a_site_that_is_not_the_coordinators_any_more_is_refused(
    guarded: GatewayServer, upstream: Upstream, keys: Path
) -> None:
    assert unheard(guarded, post(PULL), SiteKeys.read(keys / "site-b").tls())
    assert upstream.seen == []


def test_a_site_is_told_that_its_certificate_is_not_accepted(
    guarded: GatewayServer, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path / "keys", ["a"], ["127.0.0.1"], days=1)
    shutil.copy(keys / "site-a" / "ca.crt", tmp_path / "keys" / "site-a")
    own, other = (SiteKeys.read(folder / "site-a") for folder in (keys, tmp_path / "keys"))
    assert CoordinatorAddress("127.0.0.1", guarded.port, own).knock() == ""
    monkeypatch.setattr(supernode, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(contact, "REFUSED_FOR", 0.05)
    way, told = CoordinatorAddress("127.0.0.1", guarded.port, other), list[str]()
    joining = supernode.SuperNode(way, tmp_path / "home", {"name": "a"}, "app", told.append)
    with pytest.raises(ImperfedError, match="does not accept this site's certificate: the coordinator must serve"):
        joining._come_in(lambda: False)
    assert "it ends the connection" in told[0]


def test_a_site_cannot_pose_as_the_coordinator(keys: Path) -> None:
    site = SiteKeys.read(keys / "site-a")
    posing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    posing.load_cert_chain(site.client_certificate, site.client_key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), timeout=5)
        server, _ = listening.accept()
        threading.Thread(target=lambda: shaking(posing, server), daemon=True).start()
        with client, pytest.raises(ssl.SSLCertVerificationError):
            SiteKeys.read(keys / "site-b").tls().wrap_socket(client, server_hostname="127.0.0.1")


def shaking(posing: ssl.SSLContext, server: socket.socket) -> None:
    with contextlib.suppress(OSError), server:
        posing.wrap_socket(server, server_side=True)


@pytest.mark.parametrize("shakes", [False, True])
def test_idle_connections_shut_no_one_out(
    guarded: GatewayServer, keys: Path, monkeypatch: pytest.MonkeyPatch, shakes: bool
) -> None:
    monkeypatch.setattr(gateway, "NEW_PER_ADDRESS", 8)
    monkeypatch.setattr(gateway, "NEW_PER_SITE", 0)
    tls, idle = SiteKeys.read(keys / "site-a").tls(), []
    for _ in range(40):
        idle.append(socket.create_connection(("127.0.0.1", guarded.port), timeout=5))
        if shakes:
            with contextlib.suppress(OSError):
                idle[-1] = tls.wrap_socket(idle[-1], server_hostname="127.0.0.1")
    assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")
    assert len(guarded.server.newcomers.waiting) <= 8
    assert len(guarded.server.server_state.connections) <= 9
    for one in idle:
        one.close()


def test_all_sites_of_a_run_may_come_at_once_from_one_address() -> None:
    newcomers, dropped = gateway.Newcomers(sites=100), list[int]()
    for number in range(400):
        newcomers.add(number, "127.0.0.1", lambda number=number: dropped.append(number))
    assert dropped == list(range(400 - 332))
    for number in range(500, 800):
        newcomers.add(number, f"10.0.0.{number}", lambda number=number: dropped.append(number))
    assert len(newcomers.waiting) == 556


@pytest.mark.parametrize("text", [b"", b"POST /v1/fle", post(PULL, b"")[:-2]])
def test_a_request_that_does_not_begin_in_time_is_ended(
    door: GatewayServer, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(gateway, "HEAD", 0.1)
    with socket.create_connection(("127.0.0.1", door.port), timeout=5) as connection:
        connection.sendall(text)
        assert ended(connection)


@pytest.mark.parametrize("path", [PULL, "/v1/fleet/push-object"])
def test_a_request_that_is_cut_in_half_is_logged_and_the_gate_goes_on(
    guarded: GatewayServer, keys: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    tls = SiteKeys.read(keys / "site-a").tls()
    plain = socket.create_connection(("127.0.0.1", guarded.port), timeout=5)
    with tls.wrap_socket(plain, server_hostname="127.0.0.1") as half:
        half.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nhalf".encode())
    deadline = time.monotonic() + 5
    while "the sender disconnected" not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.02)
    assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")


def test_a_second_head_must_be_whole_in_time_too(door: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "HEAD", 0.2)
    with socket.create_connection(("127.0.0.1", door.port), timeout=5) as connection:
        request = f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n".encode()
        for _ in range(2):  # a pause between requests is allowed
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)
        connection.sendall(request[:20])
        assert ended(connection)


def ended(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_a_handshake_must_end_in_time(guarded: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "HANDSHAKE", 0.1)
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01")
        assert ended(connection)


def test_one_site_has_few_connections(guarded: GatewayServer, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "PER_SITE", 3)
    tls = SiteKeys.read(keys / "site-a").tls()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", guarded.port), timeout=5))
            stack.enter_context(tls.wrap_socket(plain, server_hostname="127.0.0.1"))
        time.sleep(0.1)
        assert unheard(guarded, post(PULL), tls)
    time.sleep(0.2)
    assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")


def test_bodies_on_their_way_are_limited(
    guarded: GatewayServer, upstream: Upstream, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "OF_ONE_SITE", 2000)
    tls = SiteKeys.read(keys / "site-a").tls()
    half = f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 1500\r\n\r\nhalf".encode()
    plain = socket.create_connection(("127.0.0.1", guarded.port), timeout=5)
    with tls.wrap_socket(plain, server_hostname="127.0.0.1") as waiting:
        waiting.sendall(half)
        time.sleep(0.2)
        assert speak(guarded, post(PULL, b"x" * 600), tls).startswith(b"HTTP/1.1 503")
        assert speak(guarded, post(PULL, b"x" * 400), tls).startswith(b"HTTP/1.1 200")
    time.sleep(0.2)
    assert speak(guarded, post(PULL, b"x" * 600), tls).startswith(b"HTTP/1.1 200")


def lines_of(seldom: Seldom, numbers: range, site: str = "") -> list[str]:
    """Return the lines that are written of so many."""
    written = []
    for number in numbers:
        record = logging.LogRecord("", logging.WARNING, "", 0, "refused %d", (number,), None)
        if site:
            record.site = site
        if seldom.filter(record):
            written.append(record.getMessage())
    return written


def test_the_log_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    seldom, now = Seldom(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert lines_of(seldom, range(100)) == [f"refused {number}" for number in range(30)]
    now[0] += 61
    assert lines_of(seldom, range(100, 101)) == ["refused 100 (70 lines before it were left out)"]
    assert lines_of(seldom, range(101, 102)) == ["refused 101"]


def test_strangers_and_other_sites_do_not_hide_in_the_log_what_a_site_does() -> None:
    seldom = Seldom()
    assert len(lines_of(seldom, range(100))) == 30
    assert lines_of(seldom, range(3), "north") == ["refused 0", "refused 1", "refused 2"]
    assert len(lines_of(seldom, range(100), "south")) == 30
    assert lines_of(seldom, range(3, 5), "north") == ["refused 3", "refused 4"]
    assert lines_of(seldom, range(1)) == []


def test_lines_about_a_site_say_so(
    guarded: GatewayServer, keys: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module.log, "filters", [])
    tls = SiteKeys.read(keys / "site-a").tls()
    speak(guarded, post("/v1/control/list-runs"), tls)
    monkeypatch.setattr(allowance, "OF_ONE_SITE", 10)
    speak(guarded, post(PULL, b"x" * 600), tls)
    monkeypatch.setattr(gateway, "PER_SITE", 0)
    with contextlib.suppress(OSError):
        speak(guarded, post(PULL), tls)
    said = {(record.getMessage().split(" ")[0], getattr(record, "site", "")) for record in caplog.records}
    assert said == {("refused", "a"), ("too", "a")}
    assert sum("connections already" in record.getMessage() for record in caplog.records) == 1


def test_one_site_makes_so_many_requests_a_second() -> None:
    now = [50.0]
    allowed = allowance.Allowance(clock=lambda: now[0])
    assert not any(allowed.pause("north") for _ in range(allowance.AT_ONCE))
    pauses = [allowed.pause("north") for _ in range(3)]
    assert pauses == pytest.approx([k / allowance.PER_SECOND for k in (1, 2, 3)])
    assert allowed.pause("south") == 0
    assert not any(allowed.pause("") for _ in range(3000))  # without keys
    now[0] += 1
    assert sum(not allowed.pause("north") for _ in range(200)) == allowance.PER_SECOND - 3
    now[0] += 1000
    assert sum(not allowed.pause("north") for _ in range(2000)) == allowance.AT_ONCE


def test_requests_beyond_that_wait(guarded: GatewayServer, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "AT_ONCE", 1)
    monkeypatch.setattr(allowance, "PER_SECOND", 5)
    tls, began = SiteKeys.read(keys / "site-a").tls(), time.monotonic()
    for _ in range(3):
        assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began > 0.35


def test_an_address_that_is_taken(door: GatewayServer) -> None:
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{door.port}"):
        GatewayServer(Gate("http://127.0.0.1:1", ca=None), "127.0.0.1", door.port)


def test_a_gate_that_was_never_opened_can_be_closed() -> None:
    door = GatewayServer(Gate("http://127.0.0.1:1", ca=None), "127.0.0.1", 0)
    door.close()  # as after SuperLink did not start: the reason must not be hidden by another error
    assert door.socket.fileno() == -1


@pytest.fixture
def patient(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayServer]:
    """A gate that holds back the answer that there is no message."""
    monkeypatch.setattr(holding, "LONGEST_HOLD", 20.0)
    bells = Bell(tmp_path / "sent"), Bell(tmp_path / "answered")
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", None, True, *bells)
    opened = GatewayServer(gate, "127.0.0.1", 0).open()
    yield opened
    opened.close()


def bells(tmp_path: Path) -> tuple[Bell, Bell]:
    return Bell(tmp_path / "sent"), Bell(tmp_path / "answered")


def asking(door: GatewayServer, body: bytes = b"") -> socket.socket:
    """A site that has asked; an upstream that echoes has no message for one that says nothing."""
    connection = socket.create_connection(("127.0.0.1", door.port), timeout=10)
    connection.sendall(post(PULL, body))
    return connection


def test_a_site_without_a_message_is_answered_when_one_is_sent(patient: GatewayServer, tmp_path: Path) -> None:
    with asking(patient) as site:
        site.settimeout(0.5)
        with pytest.raises(TimeoutError):
            site.recv(100)
        bells(tmp_path)[0].ring()
        site.settimeout(10)
        assert site.recv(100).startswith(b"HTTP/1.1 200")


def test_a_message_is_not_held_back(patient: GatewayServer) -> None:
    with asking(patient, b"message") as site:
        assert site.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_site_without_a_message_is_answered_in_the_end(
    patient: GatewayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "LONGEST_HOLD", 0.2)
    with asking(patient) as site:
        assert site.recv(100).startswith(b"HTTP/1.1 200")


def test_a_site_that_has_gone_is_not_waited_for(patient: GatewayServer) -> None:
    asking(patient).close()
    deadline = time.monotonic() + 10
    while patient.server.server_state.tasks:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_answer_rings_for_the_run(patient: GatewayServer, tmp_path: Path) -> None:
    for path, times in ((PULL, 0), ("/v1/fleet/push-messages", 1), ("/v1/fleet/push-object", 2)):
        speak(patient, post(path))
        assert bells(tmp_path)[1].rung() == times


def test_what_is_refused_does_not_ring(patient: GatewayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site could otherwise keep the run asking for answers all the time."""
    monkeypatch.setattr(Recorder, "status", 403)
    assert speak(patient, post("/v1/fleet/push-messages", b"x")).startswith(b"HTTP/1.1 403")
    assert bells(tmp_path)[1].rung() == 0
    monkeypatch.setattr(Recorder, "status", 200)
    speak(patient, post("/v1/fleet/push-messages", b"x"))
    assert bells(tmp_path)[1].rung() == 1


def test_a_bell_that_was_rung_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "bell")
    bell.ring()
    began = time.monotonic()
    bell.wait(0, 20)
    assert time.monotonic() - began < 10
    bell.wait(1, 0.05)
    assert time.monotonic() - began >= 0.05


def test_a_connection_that_is_ended_keeps_its_descriptor() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hang_up(ours)
        assert ours.fileno() >= 0  # asyncio may still use it
        assert theirs.recv(1) == b""
        theirs.close()
        hang_up(ours)


def test_a_site_pushes_no_more_than_an_answer_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "ANSWER", 100)
    allowed = allowance.Allowance()

    def push(length: int, site: str = "north") -> int:
        if refusal := allowed.refusal(site, length, True):
            return refusal[0]
        with allowed.passing(site, length, True):
            return 200

    assert [push(60), push(60), push(40), push(1)] == [200, 413, 200, 413]
    assert push(100, "south") == 200
    assert allowed.refusal("north", 1, False) is None  # only what is pushed stays
    allowed.given("north", 2)
    assert [push(2 * allowance.TIMES), push(1)] == [200, 413]
    allowed.message("north")
    assert [push(101), push(100)] == [413, 200]
    assert [push(10**6, ""), push(10**6, "")] == [200, 200]  # without keys
    assert not +allowed.on_the_way


def test_a_message_gives_leave_to_answer(guarded: GatewayServer, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "ANSWER", 100)
    monkeypatch.setattr(allowance, "TIMES", 0)
    tls, large = SiteKeys.read(keys / "site-a").tls(), post("/v1/fleet/push-object", b"x" * 80)
    told = [speak(guarded, words, tls)[9:12] for words in (large, large, post(PULL, b"a message"), large)]
    assert told == [b"200", b"413", b"200", b"200"]


def test_the_record_of_a_message_is_short(door: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "LONGEST_RECORD", 10)
    told = [speak(door, post(f"/v1/fleet/push-{what}", b"x" * 11))[9:12] for what in ("messages", "object")]
    assert told == [b"413", b"200"]


def test_bodies_of_all_sites_together_are_limited() -> None:
    passing = allowance.Allowance()
    with contextlib.ExitStack() as stack:
        for k in range(allowance.IN_ALL // allowance.OF_ONE_SITE):
            assert passing.refusal(f"site{k}", allowance.OF_ONE_SITE, False) is None
            stack.enter_context(passing.passing(f"site{k}", allowance.OF_ONE_SITE, False))
        assert passing.refusal("another", 1, False) == (503, "too much at once")
    assert passing.refusal("another", 1, False) is None


def test_tls_itself_asks_for_the_certificate(guarded: GatewayServer) -> None:
    """What comes without one must not get as far as HTTP, where it would be refused as well."""
    tls = guarded.server.config.ssl
    assert tls is not None
    assert tls.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "headers",
    [[], [b"5", b"5"], [b"5", b"6"], [b"-5"], [b"5, 5"], [b"0x5"]],
    ids=lambda lengths: b" and ".join(lengths).decode() or "none",
)
def test_a_length_is_stated_once_and_plainly(headers: list[bytes]) -> None:
    """Whatever the parser before the gate makes of it: what is behind the gate may read it in another way."""
    scope = {"type": "http", "method": "POST", "raw_path": PULL.encode(), "query_string": b""}
    refusal = Gate("http://127.0.0.1:1", ca=None).refusal(
        scope | {"headers": [(b"content-length", h) for h in headers]}
    )
    assert refusal == (411, "a length must be stated, once")


def test_every_request_behind_the_gate_shows_that_it_is_the_coordinators_own(upstream: Upstream) -> None:
    door = GatewayServer(Gate(f"http://127.0.0.1:{upstream.server_port}", None, word="our word"), "127.0.0.1", 0).open()
    speak(door, post(PULL, extra=f"{HEADER}: theirs\r\n"))
    door.close()
    [(_, headers, _)] = upstream.seen
    assert headers[HEADER] == "our word"


def test_a_gate_that_closes_answers_those_who_wait_and_logs_no_error(
    upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is at the coordinator's terminal sees how the run ended, not how a request did."""
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", None, True, Bell(tmp_path / "sent"))
    door = GatewayServer(gate, "127.0.0.1", 0).open()
    with socket.create_connection(("127.0.0.1", door.port), timeout=5) as waiting:
        waiting.sendall(post(PULL, b"").replace(b"Connection: close\r\n", b""))
        while not gate.holding.sent.waiting:  # type: ignore[union-attr]
            time.sleep(0.01)
        began = time.monotonic()
        door.close()
        assert time.monotonic() - began < 1.5
        assert waiting.recv(1000).startswith(b"HTTP/1.1 200")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
