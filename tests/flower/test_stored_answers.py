"""An answer as it lies in Flower's store, forged or endless, in pieces or in one: it is measured before it is read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store.sql_object_store import SqlObjectStore

from imperfed.core.foreign_text import LONGEST
from imperfed.core.labels import Candidates
from imperfed.engine.failures import Failure, Misshapen, Silent
from imperfed.flower.coordinator.mailbox import SuperLinkMailbox
from imperfed.flower.messages import stored_reply
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import ASKED, Payload, pack, unpack
from imperfed.flower.messages.stored_reply import MOST_NAMES, StoredReply, head
from imperfed.flower.processes import adapter
from tests.flower.test_mishaps import ROUND, SITE, everybody, in_round
from tests.support.forged import name_of, obj, rebuilt
from tests.support.rehearsal import Apart, raw


def no_json(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, b"this is not JSON"


def one_piece_3000_times(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, json.dumps(json.loads(body) | {"arraychunk_ids": [0] * 3_000_000}).encode()


def many_names(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, json.dumps({f"name {i}": children[i % len(children)] for i in range(100_000)}).encode()


def a_claim_of_gigabytes(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, json.dumps(json.loads(body) | {"shape": [2**31]}).encode()


def another_type(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, json.dumps(json.loads(body) | {"dtype": "object"}).encode()


def a_hidden_name(children: list[str], body: bytes) -> tuple[list[str], bytes]:
    return children, json.dumps({f"\x1b[2J{name}": child for name, child in json.loads(body).items()}).encode()


FORGED: dict[str, tuple[str, Callable[[list[str], bytes], tuple[list[str], bytes]], str]] = {
    "no JSON": ("RecordDict", no_json, "it cannot be read (JSONDecodeError"),
    "no JSON in a record": ("ArrayRecord", no_json, "it cannot be read (JSONDecodeError"),
    "no JSON in an array": ("Array", no_json, "it cannot be read (JSONDecodeError"),
    "one piece 3,000,000 times": ("Array", one_piece_3000_times, "it takes more than"),
    "100,000 names": ("ArrayRecord", many_names, f"it has more than {MOST_NAMES} names"),
    "gigabytes by claim": ("Array", a_claim_of_gigabytes, "'up/w' cannot be read (declared float32 (2147483648,)"),
    "objects in an array": ("Array", another_type, "'up/w' cannot be read ('object')"),
    "a name that is hidden": ("ArrayRecord", a_hidden_name, "cannot be the name of a tensor"),
    "no words": ("ConfigRecord", no_json, "it cannot be read (DecodeError"),
}


@pytest.mark.parametrize("fault", FORGED)
def test_a_forged_answer_is_charged_to_its_site(fault: str, tmp_path: Path) -> None:
    kind, change, reason = FORGED[fault]
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    apart.grid.nodes[100 + SITE].mishap = in_round(lambda m, answer: rebuilt(answer(m), kind, change))  # type: ignore
    began = time.process_time()
    apart.go()
    ((site, failure),) = apart.reports[ROUND].failures.items()
    assert site == SITE
    assert type(failure) is Misshapen
    assert reason in failure.reason
    assert len(failure.reason) < LONGEST + 100
    assert failure.reason.isprintable()
    assert time.process_time() - began < 30
    assert len(apart.reports) == 3
    assert not apart.reports[ROUND + 1].failures


def test_an_answer_larger_than_expected_is_not_fetched_to_its_end() -> None:
    fetched = []

    def fetch(name: str) -> bytes:
        fetched.append(name)
        return bytes(1000)

    reply = StoredReply("", "0", [str(i) for i in range(2000)], fetch).read(limit=10_000)
    assert isinstance(reply, Misshapen)
    assert "it takes more than 10000 bytes" in reply.reason
    assert len(fetched) < 20
    too_many = StoredReply("", "0", [str(i) for i in range(100_000)], fetch).read(limit=10_000)
    assert isinstance(too_many, Misshapen)
    assert "it has 100000 parts" in too_many.reason
    assert len(fetched) < 20


def test_children_that_no_name_needs_are_not_unfolded() -> None:
    chunk = obj("ArrayChunk", [], bytes(1000))
    array = obj("Array", [name_of(chunk)], b'{"arraychunk_ids": [%s]}' % b",".join([b"0"] * 100))
    record = obj("ArrayRecord", [name_of(array)], b"{}")
    records = obj("RecordDict", [name_of(record)], json.dumps({"up": name_of(record)}).encode())
    message = obj("Message", [name_of(records)], b"")
    objects = {name_of(one): one for one in (chunk, array, record, records, message)}
    reply = StoredReply("", name_of(message), list(objects), objects.get).read(limit=10_000)
    assert isinstance(reply, Misshapen)
    assert "its ArrayRecord does not name its parts" in reply.reason


def test_a_site_that_never_ends_its_answer_holds_up_no_one(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    usual, released = apart.grid.new_replies, list[str]()

    def stuck(ids: Any) -> list[StoredReply]:
        """Return replies of which nothing arrives."""
        return [
            replace(reply, fetch=lambda name: None, release=partial(released.append, reply.answers))
            for reply in usual(ids)
        ]

    apart.grid.new_replies = stuck  # type: ignore[method-assign]
    replies = apart.server.transport.send(
        "query.hello", {k: apart.server.transport.greeting.payload() for k in range(4)}, "hello"
    )
    assert all(isinstance(reply, Silent) for reply in replies.values())
    assert len(released) == 4
    apart.grid.new_replies = usual  # type: ignore[method-assign]
    apart.go()
    assert not any(report.failures for report in apart.reports)


def in_one_piece(payload: Payload) -> StoredReply:
    """A reply as it comes from SuperLink if it is small."""
    adapter.identify(run=1, node=5)
    record = Parcel.of(Message(pack(payload), 1, "train")).record
    return StoredReply("asked", "root", [], lambda name: None, record=record)


def test_a_reply_in_one_piece_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {"up": {f"w{k}": torch.arange(5.0) for k in range(3)}}
    read = in_one_piece(Payload({"loss": 0.5}, trees)).read(10_000)
    assert isinstance(read, Message)
    assert torch.equal(unpack(read.content).trees["up"]["w2"], torch.arange(5.0))
    for name, most, said in (
        ("MOST_NAMES", 3, "it has more than 3 names"),
        ("LONGEST_WORDS", 10, "its words take .* bytes, and at most 10 are read"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(stored_reply, name, most)
            refused = in_one_piece(Payload({"loss": 0.5}, trees)).read(10_000)
        assert isinstance(refused, Failure)
        assert re.search(said, refused.reason)
    refused = in_one_piece(Payload({"loss": 0.5}, trees)).read(50)
    assert isinstance(refused, Failure)
    assert "it takes more than 50 bytes" in refused.reason


def test_a_reply_in_one_piece_holds_arrays_and_words_only() -> None:
    adapter.identify(run=1, node=5)
    record = Parcel.of(Message(RecordDict({"figures": MetricRecord({"loss": 0.5})}), 1, "train")).record
    refused = StoredReply("asked", "root", [], lambda name: None, record=record).read(10_000)
    assert isinstance(refused, Failure)
    assert "an object of type metric_record" in refused.reason


def test_arrays_of_several_pieces_arrive_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.flower.messages.payload.PIECE", 64)
    for n in (0, 1, 11, 12, 13, 24, 25, 100):
        w = torch.arange(float(n))
        assert torch.equal(unpack(pack(Payload({}, {"up": {"w": w}}))).trees["up"]["w"], w)


def test_a_piece_is_one_object_of_flower() -> None:
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    from imperfed.flower.messages.payload import PIECE

    assert FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE == PIECE


def stored(store: SqlObjectStore, message: Message) -> None:
    """Send a message as SuperLink takes it in."""
    for name in store.preregister(1, get_object_tree(message)):
        store.put(name, adapter.objects_of(message)[name])


def test_no_one_can_register_the_parts_of_anothers_answer_first() -> None:
    adapter.identify(run=1, node=1)
    payload = Payload({"loss": 0.5, ASKED: "7"}, {"up": {"buffers": torch.empty(0)}, "nothing": {}})
    store = SqlObjectStore(":memory:")
    store.initialize()
    guess = get_object_tree(Message(pack(payload), 5, "train"))
    for part in (guess, *guess.children):
        for child in part.children:
            del child.children[:]  # every object that can be guessed, with parts that are not its own
    for child in guess.children:
        for record in child.children:
            store.preregister(1, record)
    stored(store, Message(pack(payload), 5, "train"))


def test_equal_tensors_of_one_exchange_are_sent_to_flower_once() -> None:
    adapter.identify(run=1, node=1)
    w, salt = torch.randn(100), b"0123456789abcdef"
    a, b = (adapter.objects_of(Message(pack(Payload({"k": k}, {"down": {"w": w}}), salt), 5, "train")) for k in (1, 2))
    assert any(head(content)[0] == "ArrayChunk" for name, content in a.items() if name in b)


def test_the_grid_of_flower_has_what_the_mailbox_uses(tmp_path: Path) -> None:
    from flwr.superlink.grid.http_grid import HttpGrid

    grid = HttpGrid(token="x", insecure=True)
    assert {"node", "get_node_ids", "push_messages"} <= set(dir(grid))
    assert isinstance(HttpGrid.run, property)
    client = SuperLinkMailbox(grid, tmp_path).grid._runtime_client
    assert all(
        hasattr(client, call) for call in ("PushMessages", "PullMessages", "PullObject", "ConfirmMessageReceived")
    )


def test_sites_are_told_of_messages_once_they_are_there(tmp_path: Path) -> None:
    mailbox, order = SuperLinkMailbox(None, tmp_path), list[str]()  # type: ignore[arg-type]

    class Client:
        def PushMessages(self, request: Any) -> Any:
            order.append(f"{len(request.messages_list)} sent, rung {mailbox.sent.rung()} times")
            return SimpleNamespace(message_ids=[m.metadata.message_id for m in request.messages_list])

    mailbox.grid = SimpleNamespace(_runtime_client=Client())
    adapter.identify(run=1, node=1)
    messages = [Message(pack(Payload({"k": k})), 5, "train") for k in range(3)]
    ids = mailbox.push_messages(messages)
    assert ids == [m.metadata.message_id for m in messages]
    assert order == ["3 sent, rung 0 times"]
    assert mailbox.sent.rung() == 1
