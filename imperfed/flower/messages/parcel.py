"""A message as it is handed to Flower: in one piece if it is small, else as the objects into which Flower cuts it.

Every object is a request of its own, at the site, at the gate and at SuperLink, and a message of one tensor has six. So
the content of a small message travels inside Flower's own record of the message, for which its format has a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from imperfed.flower.messages.payload import size
from imperfed.flower.processes import adapter

SMALL = 2**19
"""The most bytes of a message that travels in one piece; the gate lets no record of a message be much longer."""


@dataclass
class Parcel:
    """One message: Flower's record of it, the ids of its objects as a tree, and the objects that are still needed."""

    record: Any
    """Protobuf `Message`; with content if the message travels in one piece."""
    tree: Any
    """Protobuf `ObjectTree`."""
    objects: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Message) -> Parcel:
        """Return a message as it is sent; it gets its number here."""
        root = adapter.numbered(message, message.object_id).metadata.message_id
        if is_small(message):
            return cls(adapter.message_to_proto(message), adapter.ObjectTree(object_id=root))
        bare = adapter.message_to_proto(adapter.remove_content_from_message(message))
        return cls(bare, adapter.get_object_tree(message), adapter.objects_of(message))

    @property
    def whole(self) -> bool:
        """Whether the record holds all there is of the message."""
        return is_whole(self.record)

    def names(self) -> list[str]:
        """Return the ids of all objects, each once."""
        return list(dict.fromkeys(part.object_id for part in adapter.iterate_object_tree(self.tree)))

    def message(self) -> Message:
        """Return the message, once all its objects are here."""
        if self.whole:
            return opened(self.record)
        return adapter.numbered(adapter.inflated(self.tree.object_id, self.objects), self.record.metadata.message_id)


def is_small(message: Message) -> bool:
    """Return whether a message travels in one piece."""
    return message.has_error() or size(message.content) <= SMALL


def is_whole(record: Any) -> bool:
    """Return whether Flower's record of a message holds its content, or reports an error and has none."""
    return bool(record.HasField("error") or record.content.items)


def opened(record: Any) -> Message:
    """Return a message from the record that holds all of it."""
    message = adapter.message_from_proto(record)
    assert isinstance(message, Message)
    return message
