"""What a site learns about its coordinator from outside: whether it answers, who answers, and what time it is there."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.core.errors import DataError, ImperfedError
from imperfed.flower.processes import coordinator_address, supernode
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.contact import Contact
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.gate import Gate
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.keys import CoordinatorKeys, SiteKeys, make_keys
from imperfed.flower.processes.supernode import SuperNode


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback that does this to every connection; returns its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def at(seconds: float) -> Callable[[socket.socket], None]:
    """Answer as the gate does, by a clock that is so far ahead."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        date = formatdate(time.time() + seconds, usegmt=True)
        connection.sendall(f"HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-length: 0\r\n\r\n".encode())

    return answer


@pytest.mark.parametrize(
    ("there", "said"),
    [(0, ""), (-10, r"is (9|10|11) s ahead of"), (60, ""), (400, r"is (399|400|401) s behind"), (-2, "")],
)
def test_a_wrong_clock_is_named(there: float, said: str) -> None:
    with answering(at(there)) as port:
        wrong = CoordinatorAddress("127.0.0.1", port, None).wrong_clock()
    assert bool(wrong) == bool(said)
    assert re.search(said, wrong)


def test_no_clock_is_not_called_wrong() -> None:
    with answering(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\ndate: soon\r\n\r\n")) as port:
        assert CoordinatorAddress("127.0.0.1", port, None).wrong_clock() == ""
    assert CoordinatorAddress("127.0.0.1", free_port(), None).wrong_clock() == ""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    make_keys(path, ["north"], ["localhost"], days=1)
    return path


def site_address(keys: Path, port: int) -> CoordinatorAddress:
    return CoordinatorAddress("127.0.0.1", port, SiteKeys.read(keys / "site-north"))


def test_the_gate_says_what_time_it_is(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = CoordinatorKeys.read(keys / "coordinator")
    gate = Gate(f"https://127.0.0.1:{free_port()}", own.ca)
    door = GatewayServer(gate, "127.0.0.1", 0, own).open()
    way = site_address(keys, door.port)
    try:
        ahead = coordinator_address.clock_ahead(way._ask(), time.time())
        assert ahead is not None
        assert -0.5 <= ahead < 2.5
        assert way.knock() == ""
        assert way.wrong_clock() == ""
    finally:
        door.close()
    assert "refused" not in caplog.text


@pytest.mark.parametrize("said", [b"", b"\x15\x03\x03\x00\x02\x02\x28"], ids=["closed", "handshake failure"])
def test_a_forwarder_without_a_coordinator_behind_it_is_not_taken_for_another_server(keys: Path, said: bytes) -> None:
    def close(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(said)

    with answering(close) as port:
        assert site_address(keys, port).knock() != ""


def test_another_server_is_named(keys: Path) -> None:
    with (
        answering(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port,
        pytest.raises(ImperfedError, match="does not speak TLS"),
    ):
        site_address(keys, port).knock()


class Scripted:
    """An address that answers as scripted, second by second."""

    address = "fed:1"

    def __init__(self) -> None:
        self.now, self.why, self.tries = 0.0, "", 0

    def knock(self) -> str:
        self.tries += 1
        if self.why == "another":
            raise DataError("another server")
        return self.why


def test_a_coordinator_that_is_gone_is_reported_again_and_again() -> None:
    way, told = Scripted(), []
    contact = Contact(way, told.append, lambda: way.now)
    assert contact.made()
    for second in range(1, 4000):
        way.now, way.why = float(second), "Connection refused" if 100 <= second < 3000 else ""
        contact.listen()
    assert told[0] == "no answer at fed:1 any more (Connection refused); trying again until there is one"
    assert told[1] == "still no answer at fed:1 after 60 s (Connection refused)"
    assert told[-1].startswith("fed:1 answers again, after 2")
    assert 5 <= len(told) <= 10


def test_first_contact() -> None:
    way, told = Scripted(), []
    way.why = "Connection refused"
    contact = Contact(way, told.append, lambda: way.now)
    assert not contact.made()
    assert not contact.made()
    assert told == ["no answer at fed:1 yet (Connection refused); trying again until there is one"]
    way.why = ""
    assert contact.made()
    assert len(told) == 1


def test_another_server_is_an_error_only_before_the_first_contact() -> None:
    way, told = Scripted(), []
    contact = Contact(way, told.append, lambda: way.now)
    way.why = "another"
    with pytest.raises(DataError):
        contact.made()
    way.why = ""
    contact.made()
    way.why = "another"
    assert not contact.made()
    assert "any more (another server)" in told[0]


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, why: str) -> tuple[SuperNode, list[str]]:
    """A site whose SuperNode has just ended with these words."""
    told: list[str] = []
    node = SuperNode(CoordinatorAddress("127.0.0.1", port, None), tmp_path, {"name": "north"}, "app", told.append)
    monkeypatch.setattr(node.node, "last_words", lambda: why)
    return node, told


def test_a_site_that_is_refused_for_its_clock_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(at(-10)) as port:
        node, told = refused(tmp_path, monkeypatch, port, "Client error '401 Unauthorized'")
        node._explain()
    assert re.search(r"clock of this machine is (9|10|11) s ahead of .*; trying again in 2 s", told[0])


def test_a_second_join_with_one_key_is_told_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, told = refused(tmp_path, monkeypatch, free_port(), "Failed to activate SuperNode")
    node._explain()
    assert "another `imperfed join` is connected with it" in told[0]
    monkeypatch.setattr(supernode, "FORGOTTEN", -1.0)
    with pytest.raises(ImperfedError, match="another `imperfed join` is connected with the same key; end that one"):
        node._explain()
