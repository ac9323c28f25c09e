"""What is changed in SuperLink's store: messages in one piece, and trees of objects that a site cannot lie about."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import Message

from imperfed.flower.messages import parcel as parcels
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import Payload, pack, unpack
from imperfed.flower.processes import adapter, superlink_patches

SUPERLINK, SITE, RUN = 1, 7, 3


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch Flower for one test."""
    store, state = adapter.InMemoryObjectStore, adapter.InMemoryLinkState
    for owner, name in (
        (store, "preregister"), (store, "get_object_tree"), (state, "store_message_and_object_tree")
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back afterwards
    superlink_patches.guard_trees()
    superlink_patches.take_whole_messages()
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
