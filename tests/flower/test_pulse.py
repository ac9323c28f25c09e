"""A site's processes that are alive and of no use: they are noticed, ended and started again."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr")

from imperfed.flower.processes import adapter, pulse
from imperfed.flower.processes.child import BEAT
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.fleet import Fleet, FleetClient
from imperfed.flower.processes.pulse import HEARTBEAT, LinkSpeed, Pulse
from imperfed.flower.processes.supernode import SuperNode

PULL = "/v1/fleet/pull-messages"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def beating(seconds: int, heartbeats: bool = True, polls: bool = True) -> str:
    """What is said of a SuperNode that worked for a minute and then only in part, after so many seconds."""
    clock = Clock()
    heart = Pulse(clock)
    for second in range(60 + seconds):
        clock.now = float(second)
        if polls or second < 60:
            with heart.call(PULL):
                pass
        if second % 20 == 0 and (heartbeats or second < 60):
            with heart.call(HEARTBEAT):
                pass
    return heart.trouble()


def test_a_supernode_that_has_stopped_to_ask_or_to_send_heartbeats_is_noticed() -> None:
    assert beating(1000) == ""
    assert beating(30, polls=False) == ""
    assert beating(120, polls=False) == "it has asked for nothing for 120 s"
    assert beating(30, heartbeats=False) == ""
    assert beating(120, heartbeats=False).startswith("it answers, but has sent no heartbeat for 1")


def test_a_coordinator_that_is_gone_is_no_reason_to_start_again() -> None:
    clock = Clock()
    heart = Pulse(clock)
    for second in range(1000):
        clock.now = float(second)
        for path in (PULL, HEARTBEAT):
            with pytest.raises(httpx.ConnectError), heart.call(path):
                raise httpx.ConnectError("refused")
    assert heart.trouble() == ""


def test_a_long_upload_is_no_reason_either() -> None:
    clock = Clock()
    heart = Pulse(clock)
    with heart.call("/v1/fleet/push-object"):
        clock.now = 500.0
        with heart.call(HEARTBEAT):
            pass
        assert heart.trouble() == ""
    assert heart.trouble() == ""


def test_a_slow_link_is_given_more_time() -> None:
    link = LinkSpeed()
    piece = 5 * 2**20
    assert link.timeout(piece) == link.timeout(100) == 30.0
    link.was_too_slow(piece, 30.0)
    assert link.timeout(piece) == pytest.approx(60.0)
    link.was_too_slow(piece, 60.0)
    assert link.timeout(piece) == pytest.approx(120.0)
    assert link.timeout(100) == 30.0
    link.took(piece, 70.0)
    assert 120.0 <= link.timeout(piece) <= 280.0
    for _ in range(20):
        link.took(piece, 1.0)
    assert link.timeout(piece) == 30.0
    link.was_too_slow(piece, 10_000.0)
    assert link.timeout(piece) == pulse.LONGEST


def test_calls_count_and_wait_as_long_as_the_link_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    waited, heard = list[float](), list[int]()

    def call(self: object, *, path: str, request: object, timeout: float) -> str:
        waited.append(timeout)
        if len(waited) == 1:
            raise httpx.ReadTimeout("no answer")
        return "answer"

    monkeypatch.setattr(adapter.ProtobufClient, "_unary_unary", call)
    key = adapter.generate_key_pairs()[0]
    client = FleetClient("127.0.0.1:1", None, key, Pulse(), LinkSpeed(), lambda: heard.append(1))
    request = SimpleNamespace(ByteSize=lambda: 5 * 2**20)
    with pytest.raises(httpx.ReadTimeout):
        client._unary_unary(path=PULL, request=request)
    assert heard == []
    assert client._unary_unary(path=PULL, request=request) == "answer"
    assert client._unary_unary(path=HEARTBEAT, request=SimpleNamespace(ByteSize=lambda: 9), timeout=5) == "answer"
    assert len(heard) == 2
    usual = adapter.FleetHttpClient("http://127.0.0.1:1", interceptors=[])
    assert isinstance(usual._client, httpx.Client)  # in whose place ours stands
    assert waited[0] == 30.0
    assert waited[1] >= 60.0
    assert waited[2] == 20.0  # in Flower 5, which an upload on the same link easily delays


def test_a_process_without_a_pulse_ends(tmp_path: Path) -> None:
    script = (
        "import time; from imperfed.flower.processes import pulse; pulse.LOOK, pulse.STILL = 0.01, 0.1;"
        "pulse.end_without(pulse.Pulse()); time.sleep(30)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"Exit Code: 1\nthe process was stuck: it has asked for nothing for 0 s" in done.stdout


class FakeNode:
    alive, stops = True, 0

    def stop(self) -> None:
        self.stops += 1


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    told: list[str] = []
    node = SuperNode(CoordinatorAddress("localhost", 1, None), tmp_path, {"name": "north"}, "app", told.append)
    fake = FakeNode()
    node.node = fake  # type: ignore[assignment]
    node.joined, long_ago = True, time.time() - 1000
    node.joined_at = long_ago
    (tmp_path / BEAT).touch()
    node._look()
    assert fake.stops == 0
    os.utime(tmp_path / BEAT, (long_ago, long_ago))
    node._look()
    assert fake.stops == 1
    assert "the process that answers messages has not been seen at work for 100" in told[0]
    node._explain()  # that it has ended is no news
    assert len(told) == 1


def test_a_handshake_that_is_cut_off_is_tried_again() -> None:
    """A server that hangs up once before TLS has begun, as the gate does with connections that are too many."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        key, _ = adapter.generate_key_pairs()
        client = FleetClient(f"127.0.0.1:{listening.getsockname()[1]}", tls, key, Pulse(), LinkSpeed())
        fleet, tries = Fleet(client, adapter.Node(node_id=1)), list[int]()

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.recv(1)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
            connection.close()

        def pull(request: object) -> object:
            tries.append(1)
            if len(tries) > 1:
                return "the answer"
            thread = threading.Thread(target=hang_up)
            thread.start()
            try:
                return client.PullMessages(request)
            finally:
                thread.join()

        assert fleet.call(pull, adapter.PullMessagesRequest(node=fleet.node)) == "the answer"
        assert len(tries) == 2
