"""A reply as it lies in Flower's object store: pieces that name each other, fetched and measured before they are read.

Flower cuts a message into objects and names each by the hash of its content:

    Message -> RecordDict -> ConfigRecord
                          -> ArrayRecord -> Array -> ArrayChunk

Flower's own reading fetches every object, however many there are, and copies a piece as often as it is named. So a
reply is fetched here, site by site, and is measured before Flower unfolds it: what it would take in memory, and how
many names it has. Whatever is wrong with it is the failure of the site that sent it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from flwr.app import Message

from imperfed.engine.failures import Failure
from imperfed.flower.messages.charging import charged
from imperfed.flower.messages.parcel import opened
from imperfed.flower.messages.payload import RefusedError, checked_name
from imperfed.flower.processes import adapter

MOST_NAMES = 1000
"""Names of tensors in one answer; no method here sends more than ten."""
MOST_OBJECTS = 2 * MOST_NAMES + 500
LONGEST_WORDS = 4 * 2**20
"""Bytes of all words of one answer; figures and names of classes take a few thousand."""
AT_ONCE = 4
"""Objects that are fetched at the same time."""


class Mailbox(Protocol):
    """What the coordinator needs from a grid."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids."""

    def new_replies(self, message_ids: Sequence[str]) -> Iterable[StoredReply]:
        """Return the replies to these messages that were not returned before; their objects may still be on the way."""

    def wait(self, seconds: float) -> None:
        """Wait for further replies, at most so long."""


@dataclass
class StoredReply:
    """A reply whose objects are fetched as they arrive."""

    answers: str
    """The id of the message that it answers, as the store knows it."""
    root: str
    """The id of the reply itself."""
    missing: list[str]
    """The objects that have not been fetched."""
    fetch: Callable[[str], bytes | None]
    """Returns an object; None if it has not arrived. Raises `RefusedError` if it never will."""
    release: Callable[[], None] = lambda: None
    """Lets the store forget the reply."""
    contents: dict[str, bytes] = field(default_factory=dict)
    record: Any = None
    """Flower's record of the reply, if that holds all of it."""

    def read(self, limit: int) -> Message | Failure | None:
        """Return the reply, or why it is refused; None while objects are missing. `limit`: in bytes."""
        return charged(lambda: self._read(limit))

    def _read(self, limit: int) -> Message | None:
        if self.record is not None:
            measure_record(self.record, limit)
            return opened(self.record)
        if len(self.missing) > MOST_OBJECTS:
            raise RefusedError(f"it has {len(self.missing)} parts, and at most {MOST_OBJECTS} are read")
        self._fetch(limit)
        if self.missing:
            return None
        unfolded = Unfolded(self.contents, limit)
        unfolded.message(self.root)
        return adapter.inflated(self.root, self.contents)

    def _fetch(self, limit: int) -> None:
        """Fetch what has arrived, and no more than a few objects beyond the limit."""
        waiting, self.missing = iter(self.missing), []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while batch := list(islice(waiting, AT_ONCE)):
                for name, content in zip(batch, pool.map(self.fetch, batch), strict=True):
                    if content is None:
                        self.missing.append(name)
                    else:
                        self.contents[name] = content
                taken = sum(map(len, self.contents.values()))
                if taken > limit:
                    raise RefusedError(f"it takes more than {limit} bytes")


def measure_record(record: Any, limit: int) -> None:
    """Refuse a reply in one piece that holds too much, or what no answer holds; nothing in it is named twice."""
    if record.ByteSize() > limit:
        raise RefusedError(f"it takes more than {limit} bytes")
    names = 0
    for item in record.content.items:
        kind = item.WhichOneof("value")
        if kind == "array_record":
            names += len(item.array_record.items)
        elif kind == "config_record":
            names, length = names + 1, item.config_record.ByteSize()
            if length > LONGEST_WORDS:
                raise RefusedError(f"its words take {length} bytes, and at most {LONGEST_WORDS} are read")
        else:
            raise RefusedError(f"it holds an object of type {kind}")
    if names > MOST_NAMES:
        raise RefusedError(f"it has more than {MOST_NAMES} names")


@dataclass
class Unfolded:
    """What a reply takes once every name has its own copy of what it names; refused beyond the limit."""

    contents: Mapping[str, bytes]
    limit: int
    size: int = 0
    names: int = 0
    arrays: dict[str, int] = field(default_factory=dict)
    """The bytes of every array, by its object."""

    def message(self, name: str) -> None:
        """Measure a message; one that reports an error has no content."""
        children, _ = self._parts(name, "Message")
        for child in children:
            self.records(child)

    def records(self, name: str) -> None:
        """Measure all records of a message."""
        for record in self._named(name, "RecordDict").values():
            kind = head(self.contents[record])[0]
            if kind == "ArrayRecord":
                for array in self._named(record, kind).values():
                    self._add(1, self._array(array))
            elif kind == "ConfigRecord":
                length = self._length(record, kind)
                if length > LONGEST_WORDS:
                    raise RefusedError(f"its words take {length} bytes, and at most {LONGEST_WORDS} are read")
                self._add(1, length)
            else:
                raise RefusedError(f"it holds an object of type {kind}")

    def _array(self, name: str) -> int:
        """Return the bytes of an array: its pieces, each as often as it is named."""
        if name not in self.arrays:
            children, body = self._parts(name, "Array")
            lengths = [self._length(child, "ArrayChunk") for child in children]
            self.arrays[name] = sum(lengths[place] for place in json.loads(body)["arraychunk_ids"])
        return self.arrays[name]

    def _add(self, names: int, length: int) -> None:
        self.names, self.size = self.names + names, self.size + length
        if self.names > MOST_NAMES:
            raise RefusedError(f"it has more than {MOST_NAMES} names")
        if self.size > self.limit:
            raise RefusedError(f"it takes more than {self.limit} bytes")

    def _named(self, name: str, kind: str) -> dict[str, str]:
        """Return the names in a record and the object of each; Flower unfolds all children, so all must be named."""
        children, body = self._parts(name, kind)
        named = json.loads(body)
        if not isinstance(named, dict) or set(named.values()) != set(children):
            raise RefusedError(f"its {kind} does not name its parts")
        return {checked_name(own): part for own, part in named.items()}

    def _parts(self, name: str, kind: str) -> tuple[list[str], bytes]:
        """Return the children and the body of an object, which must be of this kind."""
        children, start = self._head_of(name, kind)
        return children, self.contents[name][start:]

    def _length(self, name: str, kind: str) -> int:
        return len(self.contents[name]) - self._head_of(name, kind)[1]

    def _head_of(self, name: str, kind: str) -> tuple[list[str], int]:
        found, children, start = head(self.contents[name])
        if found != kind:
            raise RefusedError(f"it holds an object of type {found} in the place of {kind}")
        return children, start


def head(content: bytes) -> tuple[str, list[str], int]:
    """Return the type of an object, the ids of its children, and where its body begins."""
    end = content.index(b"\0")
    kind, children, _ = content[:end].decode().split(" ")
    return kind, children.split(",") if children else [], end + 1
