"""What a coordinator sends to exhaust a site, its log or its terminal: measured, refused, and said once."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import torch
from flwr.app import Message

from imperfed.core.errors import ImperfedError
from imperfed.core.labels import Exact
from imperfed.engine.failures import Crashed, Declined
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import Payload, RefusedError, failure_of, pack, unpack
from imperfed.flower.messages.stored_reply import head
from imperfed.flower.messages.transport import read
from imperfed.flower.processes import adapter, fetching
from imperfed.flower.processes.fetching import fetch
from imperfed.flower.processes.fleet import Fleet, FleetClient, NotTaken, reason
from imperfed.flower.processes.pulse import LinkSpeed, Pulse
from imperfed.flower.processes.site_node import untaken
from imperfed.flower.processes.supernode import SuperNode
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.refusals import Refusals
from imperfed.flower.site.runtime import REFUSALS, LocalSite
from tests.support.asked_site import asked, greeting, site_of
from tests.support.asked_site import reason as declined
from tests.support.rehearsal import Apart, raw, settled

CLEAR = "\x1b[2J\x1b]0;owned\x07"


def sent(numbers: int) -> tuple[Parcel, dict[str, bytes]]:
    """A message with so many numbers, as it lies in the store, and its objects."""
    adapter.identify(1, 1)
    whole = Parcel.of(Message(pack(Payload({"run": "r"}, {"down": {"w": torch.arange(numbers).float()}})), 5, "train"))
    return Parcel(whole.record, whole.tree), whole.objects


def repeated(record: Any, times: int) -> tuple[Parcel, dict[str, bytes]]:
    """A message whose array names its first piece so often."""
    adapter.identify(1, 1)
    message = Message(pack(Payload({"run": "r"}, {"down": {"w": torch.zeros(10**6)}})), 5, "train")
    old, new = adapter.objects_of(message), dict[str, bytes]()

    def rebuild(name: str) -> adapter.ObjectTree:
        kind, children, start = head(old[name])
        body, trees = old[name][start:], [rebuild(child) for child in children]
        for before, tree in zip(children, trees, strict=True):
            body = body.replace(before.encode(), tree.object_id.encode())
        if kind == "Array":
            body = json.dumps(json.loads(body) | {"arraychunk_ids": [0] * times}).encode()
        content = f"{kind} {','.join(tree.object_id for tree in trees)} {len(body)}".encode() + b"\0" + body
        number = hashlib.sha256(content).hexdigest()
        new[number] = content
        return adapter.ObjectTree(object_id=number, children=trees)

    return Parcel(record, rebuild(message.object_id)), new


def test_a_message_is_fetched_within_its_limit_and_no_further() -> None:
    parcel, objects = sent(10**6)
    fetch(parcel, objects.__getitem__, 5 * 10**6)
    assert parcel.objects == objects
    assert torch.equal(unpack(parcel.message().content).trees["down"]["w"], torch.arange(10**6).float())
    fetched: list[str] = []

    def pull(name: str) -> bytes:
        fetched.append(name)
        return objects[name]

    parcel, objects = sent(15 * 10**6)  # 12 pieces
    with pytest.raises(RefusedError, match="it takes more than 1000000 bytes"):
        fetch(parcel, pull, 10**6)
    assert len(fetched) <= fetching.TOGETHER < len(objects)


def test_a_message_in_one_piece_is_measured_too() -> None:
    parcel, _ = sent(1000)
    assert parcel.whole
    fetch(parcel, lambda name: b"", 5000)
    with pytest.raises(RefusedError, match="it takes more than 3000 bytes"):
        fetch(parcel, lambda name: b"", 3000)


def test_objects_that_are_not_what_was_announced_are_refused() -> None:
    parcel, objects = sent(10**6)
    with pytest.raises(RefusedError, match="an object of it is not the one that was announced"):
        fetch(parcel, lambda name: objects[name] + b"0", 10**8)


def test_a_bomb_is_measured_before_it_is_unfolded() -> None:
    """One piece that is named a thousand times."""
    parcel, objects = repeated(sent(10**6)[0].record, times=1000)
    with pytest.raises(RefusedError, match="it takes more than 100000000 bytes"):
        fetch(parcel, objects.__getitem__, 10**8)


class FakeClient:
    """A SuperLink with one message."""

    def __init__(self, parcel: Parcel, objects: dict[str, bytes]) -> None:
        self.parcel, self.objects = parcel, objects
        self.confirmed = 0

    def PullMessages(self, request: Any) -> Any:
        return type("Reply", (), {"messages_list": [self.parcel.record], "message_object_trees": [self.parcel.tree]})

    def PullObject(self, request: Any) -> Any:
        content = self.objects[request.object_id]
        return type("Reply", (), {"object_found": True, "object_available": True, "object_content": content})

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed += 1


def test_a_message_that_is_not_taken_is_answered_and_the_site_goes_on() -> None:
    parcel, objects = sent(10**6)
    client = FakeClient(parcel, objects)
    fleet = Fleet(client, adapter.Node(node_id=1), most_bytes=10**6)
    found = fleet.receive()
    assert isinstance(found, NotTaken)
    assert client.confirmed == 1  # the store may forget it
    answer = read(untaken(found, 1).message(), "asked")
    assert answer == Crashed(
        "no answer: a message was refused: it takes more than 1000000 bytes (most_bytes = 1000000)"
    )
    assert isinstance(Fleet(client, adapter.Node(node_id=1)).receive(), Parcel)


class Flood(BaseHTTPRequestHandler):
    """Answers with more bytes than any object has, or with a few that unfold to more."""

    headers_of: ClassVar[dict[str, str]] = {}
    parts: ClassVar[int] = 1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        for name, value in self.headers_of.items():
            self.send_header(name, value)
        self.end_headers()
        for _ in range(self.parts):
            try:
                self.wfile.write(bytes(2**20))
            except OSError:
                return

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def flood(parts: int, headers: dict[str, str]) -> Iterator[FleetClient]:
    kind = type("Flooding", (Flood,), {"parts": parts, "headers_of": headers})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        key, _ = adapter.generate_key_pairs()
        yield FleetClient(f"127.0.0.1:{server.server_port}", None, key, Pulse(), LinkSpeed())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("parts", "headers", "why"),
    [
        (64, {}, "the coordinator's response has more than 16777216 bytes"),
        (1, {"content-encoding": "gzip"}, "the coordinator's response is compressed, which was not asked for"),
    ],
)
def test_responses_without_end_are_not_read(parts: int, headers: dict[str, str], why: str) -> None:
    with flood(parts, headers) as client, pytest.raises(ImperfedError, match=why):
        client.PullMessages(adapter.PullMessagesRequest(node=adapter.Node(node_id=1)))


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [{"model.hidden": 10**9}, {"model.hidden": 10**5, "model.layers": 5}])
def test_a_model_that_would_fill_the_memory_is_refused_before_it_is_built(size: dict[str, Any], tmp_path: Path) -> None:
    place, run_info = site_of(tmp_path), greeting(model="mlp", **size)
    words = {"round": 0, "exchange": 0, "evaluate": 0, "from": [-1, 0], "base": [-1, 0], "best": [-1, 0]}
    model = {"w": torch.zeros(6), "buffers": torch.zeros(0)}
    assert "and this site allows 100000000 (most_weights)" in declined(
        asked(place, "train", run_info, words, down=model)
    )


def test_the_policy_says_how_many_parameters(tmp_path: Path) -> None:
    class Small(Apart):
        def place(self, holding: Any) -> LocalSite:
            return replace(super().place(holding), policy=SitePolicy(most_weights=self.most))

        most = 10**6

    Small(settled("fedavg", **{"model.name": "mlp"}), raw(Exact), tmp_path / "allowed").start()
    Small.most = 500
    with pytest.raises(Exception, match=r"it has \d+ parameters, and this site allows 500"):
        Small(settled("fedavg", **{"model.name": "mlp"}), raw(Exact), tmp_path / "refused").start()


# -- the log and the terminal ------------------------------------------------------------------------------------------


def test_what_is_refused_again_and_again_is_logged_as_a_number(tmp_path: Path) -> None:
    place, run_info = site_of(tmp_path, methods=("fedprox",)), greeting()
    refusals = [handle(place, "query.hello", pack(run_info.payload())) for _ in range(20)]
    assert all(isinstance(failure_of(one), Declined) for one in refusals)
    log = (place.state / "log.txt").read_text()
    assert log.count("federation.toml: numeric") == 1
    assert [f"refused {n} times by now: run.method" in log for n in (2, 3, 4, 8, 16)] == [True, False, True, True, True]
    asked(place, "query.hello", greeting(rounds=4))  # another run is another refusal
    assert (place.state / "log.txt").read_text().count("federation.toml: numeric") == 2


def test_refusals_that_are_never_the_same_do_not_fill_the_log(tmp_path: Path) -> None:
    place = site_of(tmp_path, methods=("fedprox",))
    for n in range(110):
        asked(place, "query.hello", greeting(rounds=n + 1))
    log = (place.state / "log.txt").read_text()
    assert log.count("refused: run.method") == 110
    assert log.count("federation.toml: numeric") == 100
    assert len(Refusals.read(place.state / REFUSALS).times) == 100
    long = greeting(declaration="\n".join([greeting().declaration, *(f"# {n}" for n in range(10_000))]))
    place = site_of(tmp_path / "long", methods=("fedprox",))
    asked(place, "query.hello", long)
    assert len((place.state / "log.txt").read_text().splitlines()) < 520


@pytest.mark.parametrize("say", ["reason", "last words", "told"])
def test_a_coordinator_does_not_steer_the_terminal(say: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    way = type("Way", (), {"keys": None, "address": "host:1"})()
    node = SuperNode(way, tmp_path, {"name": "north"}, "app", told.append)
    if say == "reason":
        content = f'{{"code": 1, "message": "{CLEAR}", "public_details": ""}}'.encode("unicode_escape")
        response = httpx.Response(400, content=content, request=httpx.Request("POST", "http://host"))
        told.append(reason(httpx.HTTPStatusError(CLEAR, request=response.request, response=response)))
    elif say == "last words":
        node.node.log.write_text(f"something\n{CLEAR}\n")
        told.append(node.node.last_words())
    else:
        node.tell(CLEAR)
    assert told
    assert all(c.isprintable() for line in told for c in line)
    assert "x1b" in told[0]
