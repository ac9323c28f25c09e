"""Connections of the gate: idle, slow, cut or too many, they end, and shut no one out."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.core.errors import UsageError
from imperfed.flower.processes import gate as gate_module
from imperfed.flower.processes import gateway
from imperfed.flower.processes.gate import Gate
from imperfed.flower.processes.gateway import GatewayServer, hang_up
from imperfed.flower.processes.keys import SiteKeys
from tests.support.gate import PULL, Upstream, post, speak, unheard

pytest_plugins = ["tests.support.gate_fixtures"]
pytestmark = pytest.mark.usefixtures("lines_left")


def test_an_address_that_is_taken(door: GatewayServer) -> None:
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{door.port}"):
        GatewayServer(Gate("http://127.0.0.1:1", ca=None), "127.0.0.1", door.port)


def test_a_gate_that_was_never_opened_can_be_closed() -> None:
    door = GatewayServer(Gate("http://127.0.0.1:1", ca=None), "127.0.0.1", 0)
    door.close()  # as after SuperLink did not start: the reason must not be hidden by another error
    assert door.socket.fileno() == -1


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


def test_a_handshake_must_end_in_time(guarded: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "HANDSHAKE", 0.1)
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01")
        assert ended(connection)


@pytest.mark.parametrize("text", [b"", b"POST /v1/fle", post(PULL, b"")[:-2]])
def test_a_request_that_does_not_begin_in_time_is_ended(
    door: GatewayServer, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(gateway, "HEAD", 0.1)
    with socket.create_connection(("127.0.0.1", door.port), timeout=5) as connection:
        connection.sendall(text)
        assert ended(connection)


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


def test_a_body_that_never_comes_ends_in_time(
    door: GatewayServer, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "SECONDS", 0.2)
    head = f"POST {PULL} HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nhalf".encode()
    assert speak(door, head).startswith(b"HTTP/1.1 408")


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


def test_a_connection_that_is_ended_keeps_its_descriptor() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hang_up(ours)
        assert ours.fileno() >= 0  # asyncio may still use it
        assert theirs.recv(1) == b""
        theirs.close()
        hang_up(ours)
