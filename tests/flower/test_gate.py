"""The gate: what passes arrives unchanged, and nothing else arrives at all, however it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("flwr")

import httpx

from imperfed.flower.processes.gate import Gate
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.holding import Scope
from imperfed.flower.processes.own_calls import HEADER
from tests.support.gate import PULL, Upstream, post, speak

pytest_plugins = ["tests.support.gate_fixtures"]
pytestmark = pytest.mark.usefixtures("lines_left")


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


def test_every_request_behind_the_gate_shows_that_it_is_the_coordinators_own(upstream: Upstream) -> None:
    door = GatewayServer(Gate(f"http://127.0.0.1:{upstream.server_port}", None, word="our word"), "127.0.0.1", 0).open()
    speak(door, post(PULL, extra=f"{HEADER}: theirs\r\n"))
    door.close()
    [(_, headers, _)] = upstream.seen
    assert headers[HEADER] == "our word"


def test_large_bodies_pass_whole(door: GatewayServer, upstream: Upstream) -> None:
    body = bytes(range(256)) * 4 * 2**12
    assert speak(door, post(PULL, body)).partition(b"\r\n\r\n")[2] == body[::-1]


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


@pytest.mark.parametrize("method", ["GET", "PUT", "CONNECT", "OPTIONS", "post"])
def test_posts_only(door: GatewayServer, upstream: Upstream, method: str) -> None:
    assert b"200" not in speak(door, post(PULL, method=method))[:15]
    assert upstream.seen == []


def test_sites_without_keys_may_register_themselves_where_that_was_asked_for(upstream: Upstream) -> None:
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None, keyless=True)
    door = GatewayServer(gate, "127.0.0.1", 0).open()
    assert speak(door, post("/v1/fleet/register-node")).startswith(b"HTTP/1.1 200")
    assert speak(door, post("/v1/control/register-node")).startswith(b"HTTP/1.1 404")
    door.close()


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
