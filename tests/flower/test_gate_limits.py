"""Limits of the gate: of sizes, of what is on its way, of requests a second, and of lines in the log."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.flower.processes import allowance, gateway
from imperfed.flower.processes import gate as gate_module
from imperfed.flower.processes.gate import Seldom
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.keys import SiteKeys
from tests.support.gate import PULL, Upstream, post, speak

pytest_plugins = ["tests.support.gate_fixtures"]
pytestmark = pytest.mark.usefixtures("lines_left")


def test_sizes_are_limited(door: GatewayServer, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "LONGEST_BODY", 10)
    assert speak(door, post(PULL, b"x" * 10)).startswith(b"HTTP/1.1 200")
    assert speak(door, post(PULL, b"x" * 11)).startswith(b"HTTP/1.1 413")
    assert speak(door, post(PULL, extra=f"A: {'x' * 40000}\r\n")).startswith(b"HTTP/1.1 431")
    assert len(upstream.seen) == 1


def test_the_record_of_a_message_is_short(door: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "LONGEST_RECORD", 10)
    told = [speak(door, post(f"/v1/fleet/push-{what}", b"x" * 11))[9:12] for what in ("messages", "object")]
    assert told == [b"413", b"200"]


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


def test_bodies_of_all_sites_together_are_limited() -> None:
    passing = allowance.Allowance()
    with contextlib.ExitStack() as stack:
        for k in range(allowance.IN_ALL // allowance.OF_ONE_SITE):
            assert passing.refusal(f"site{k}", allowance.OF_ONE_SITE, False) is None
            stack.enter_context(passing.passing(f"site{k}", allowance.OF_ONE_SITE, False))
        assert passing.refusal("another", 1, False) == (503, "too much at once")
    assert passing.refusal("another", 1, False) is None


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
