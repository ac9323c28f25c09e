"""What is changed in SuperLink's store: messages in one piece, and trees of objects that a site cannot lie about."""

from __future__ import annotations

import hashlib
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import Message

from imperfed.flower.messages import parcel as parcels
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import Payload, pack, unpack
from imperfed.flower.processes import adapter, superlink_patches

SUPERLINK, SITE, OTHER, RUN = 1, 7, 8, 3


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch Flower for one test."""
    store, state = adapter.InMemoryObjectStore, adapter.InMemoryLinkState
    for owner, name in (
        (store, "preregister"), (store, "get_object_tree"), (state, "store_message_and_object_tree")
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back afterwards
    handlers = import_module(adapter.NAMES["push_messages"])
    monkeypatch.setattr(handlers, "push_messages", handlers.push_messages)
    monkeypatch.setattr(handlers, "check_abort", lambda *words: None)
    superlink_patches.guard_trees()
    superlink_patches.take_whole_messages()
    superlink_patches.let_sites_only_answer()
    adapter.identify(RUN, SUPERLINK)


def named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tree(name: str, *children: Any) -> Any:
    return adapter.ObjectTree(object_id=named(name), children=children)


def test_an_object_keeps_the_parts_it_had_first() -> None:
    store = adapter.InMemoryObjectStore()
    whole = tree("root", tree("a", tree("x")), tree("b"))
    assert len(store.preregister(RUN, whole)) == 4
    assert store.preregister(RUN, whole) == [named(name) for name in ("x", "a", "b", "root")]
    with pytest.raises(ValueError, match="has other parts in another place"):
        store.preregister(RUN, tree("other", tree("a")))  # a leaf here, which would stand for all its parts
    assert named("other") not in store


@pytest.mark.parametrize(
    "wrong", [tree("r", tree("x"), tree("x")), tree("r", tree("a", tree("x")), tree("b", tree("a")))]
)
def test_a_tree_does_not_contradict_itself(wrong: Any) -> None:
    with pytest.raises(ValueError, match="has other parts in another place"):
        adapter.InMemoryObjectStore().preregister(RUN, wrong)


def test_a_tree_has_no_more_objects_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink_patches, "MOST_OBJECTS", 3)
    store = adapter.InMemoryObjectStore()
    store.preregister(RUN, tree("r", tree("a"), tree("b")))
    with pytest.raises(ValueError, match="more than 3 objects"):
        store.preregister(RUN, tree("s", tree("c"), tree("d"), tree("e")))


class State:
    """SuperLink's state, without the checks of a message that are not changed."""

    def __init__(self) -> None:
        self.state = adapter.InMemoryLinkState.__new__(adapter.InMemoryLinkState)
        adapter.InMemoryLinkState.__init__(self.state, type("Manager", (), {})(), adapter.InMemoryObjectStore())
        self.kept: list[Message] = []
        for name in ("store_message_ins", "store_message_res"):
            setattr(self.state, name, lambda message: self.kept.append(message) or message.metadata.message_id)

    def push(self, parcel: Parcel) -> tuple[bool, list[str]]:
        message = adapter.message_from_proto(parcel.record)
        stored: tuple[bool, list[str]] = self.state.store_message_and_object_tree(
            message, parcel.tree, self.state.start_session(RUN)
        )
        return stored


def message() -> Message:
    return Message(pack(Payload({"round": 1}, {"down": {"w": torch.arange(5.0)}})), SITE, "train")


def test_a_small_message_needs_no_objects() -> None:
    link, sent = State(), Parcel.of(message())
    assert link.push(sent) == (True, [])
    store, [kept] = link.state.object_store, link.kept
    assert torch.equal(unpack(kept.content).trees["down"]["w"], torch.arange(5.0))
    assert store.get_object_tree(sent.record.metadata.message_id) == sent.tree
    with pytest.raises(Exception, match="not pre-registered"):
        store.get_object_tree(sent.record.metadata.message_id)  # nothing is kept of it once it is delivered
    assert link.state._object_push_sessions == {}


def test_a_large_message_travels_as_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "SMALL", 10)
    link, sent = State(), Parcel.of(message())
    stored, missing = link.push(sent)
    assert stored
    assert set(missing) == set(sent.objects) == set(sent.names())
    assert not link.kept[0].content
    received = Parcel(sent.record, sent.tree, dict(sent.objects)).message()
    assert torch.equal(unpack(received.content).trees["down"]["w"], torch.arange(5.0))
    assert received.metadata.message_id == sent.record.metadata.message_id


def test_the_objects_of_a_message_are_its_own() -> None:
    sent = Parcel.of(message())
    sent.tree = tree("another")
    with pytest.raises(ValueError, match="not those of the message"):
        State().push(sent)


class Fleet:
    """SuperLink's interface for sites, with two sites and a run; whether the run goes on is not looked up."""

    def __init__(self) -> None:
        manager = SimpleNamespace(has_node=lambda *words: True, filter_nodes=lambda nodes, name: nodes)
        self.state = adapter.InMemoryLinkState(manager, adapter.InMemoryObjectStore())
        self.state.run_ids[RUN] = SimpleNamespace(run=SimpleNamespace(federation_id="one"))
        for name in ("store_traffic", "add_clientapp_runtime"):
            setattr(self.state, name, lambda *words, **named: None)
        self.state._is_finished_run = lambda run: False
        for node in (SITE, OTHER):
            self.state.nodes[node] = SimpleNamespace(status="online", node_id=node)

    def push(self, caller: int, *parcels: Parcel) -> Any:
        request = adapter.PushMessagesRequest(
            node=adapter.Node(node_id=caller),
            messages_list=[one.record for one in parcels],
            message_object_trees=[one.tree for one in parcels],
        )
        return import_module(adapter.NAMES["push_messages"]).push_messages(request, self.state)

    def waiting_for(self, node: int) -> int:
        return len(self.state.get_message_ins(node_id=node, limit=None))


def said_by(node: int, to: int, answers: Message | None = None) -> Parcel:
    """A message that says who has sent it."""
    adapter.identify(RUN, node)
    content = pack(Payload({"round": 1}))
    return Parcel.of(Message(content, to, "train", ttl=1e6) if answers is None else Message(content, reply_to=answers))


@pytest.mark.parametrize("to", [SITE, OTHER, SUPERLINK])
def test_a_site_sends_no_message_as_the_run(to: int) -> None:
    fleet = Fleet()
    with pytest.raises(adapter.FlowerError, match="node 7: it says that it is from node 1"):
        fleet.push(SITE, said_by(SUPERLINK, to))
    assert fleet.waiting_for(to) == 0
    own = said_by(SITE, to)
    with pytest.raises(adapter.FlowerError, match="node 7: it answers no message"):
        fleet.push(SITE, own)
    with pytest.raises(adapter.FlowerError, match="one message with its objects"):
        fleet.push(SITE, own, own)
    with pytest.raises(adapter.FlowerError, match="one message with its objects"):
        fleet.push(SITE)


def asked_by(fleet: Fleet) -> Message:
    """A message of the run that SuperLink has for the site."""
    adapter.identify(RUN, SUPERLINK)
    asked = Message(pack(Payload({"round": 1})), SITE, "train", ttl=1e6)
    return adapter.numbered(asked, fleet.state.store_message_ins(adapter.message_from_proto(Parcel.of(asked).record)))


def test_an_answer_whose_objects_contradict_each_other_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have no objects, and the site could give no other answer."""
    monkeypatch.setattr(parcels, "SMALL", 10)
    fleet = Fleet()
    asked = asked_by(fleet)
    answer = said_by(SITE, SUPERLINK, asked)
    record = next(part for part in adapter.iterate_object_tree(answer.tree) if len(part.children) == 1)
    wrong = Parcel(answer.record, adapter.ObjectTree())
    wrong.tree.CopyFrom(answer.tree)
    wrong.tree.children.append(adapter.ObjectTree(object_id=record.object_id))
    with pytest.raises(ValueError, match="has other parts in another place"):
        fleet.push(SITE, wrong)
    assert not fleet.state.message_res_store
    fleet.push(SITE, answer)
    assert len(fleet.state.message_res_store) == 1


def test_a_site_answers_for_itself_only() -> None:
    fleet = Fleet()
    asked = asked_by(fleet)
    answer = said_by(SITE, SUPERLINK, asked)
    with pytest.raises(adapter.FlowerError, match="node 8: it says that it is from node 7"):
        fleet.push(OTHER, answer)
    assert not fleet.state.message_res_store
    fleet.push(SITE, answer)
    assert len(fleet.state.message_res_store) == 1
