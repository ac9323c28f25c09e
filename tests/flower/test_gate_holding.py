"""A site without a message waits at the gate until a bell rings for one; what a site sends rings for the run."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.flower.processes import holding
from imperfed.flower.processes.bell import Bell
from imperfed.flower.processes.gate import Gate
from imperfed.flower.processes.gateway import GatewayServer
from tests.support.gate import PULL, Recorder, Upstream, post, speak

pytest_plugins = ["tests.support.gate_fixtures"]
pytestmark = pytest.mark.usefixtures("lines_left")


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
