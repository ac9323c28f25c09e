"""A grid in one process: the real apps and the real serialisation, without a network. For tests and demonstration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from imperfed.flower.messages.stored_reply import StoredReply
from imperfed.flower.processes import adapter

SERVER = 1
"""The node number of the coordinator in Flower."""
APP_FAILED = 2
"""Flower's code for an error inside a ClientApp."""


@dataclass(frozen=True)
class Forged:
    """A reply that is not what Flower makes of a message: any objects under any names."""

    root: str
    objects: dict[str, bytes]


Mishap = Callable[[Message, Callable[[Message], Message]], Message | Forged | None]
"""A fault: called with a message and the function that would answer it; returns the reply, or None."""


@dataclass
class Node:
    """One site: its app, its settings, and what goes wrong there."""

    app: ClientApp
    config: dict[str, str | int | float | bool]
    mishap: Mishap | None = None
    online: bool = True


@dataclass
class LocalGrid:
    """Every message is answered when it is pulled, by calling the site's app."""

    nodes: dict[int, Node]
    sent: list[tuple[str, Message]] = field(default_factory=list)
    """Every message delivered ("down") and every reply ("up"), as it came out of serialisation."""
    waiting: dict[str, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        adapter.identify(run=1, node=SERVER)
        self.pushed = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are online."""
        return [number for number, node in self.nodes.items() if node.online]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Accept messages; return their ids."""
        numbers = []
        for message in messages:
            self.pushed += 1
            numbers.append(f"message-{self.pushed}")
            self.waiting[numbers[-1]] = adapter.delivered(message, numbers[-1])
        return numbers

    def new_replies(self, message_ids: Sequence[str]) -> list[StoredReply]:
        """Return the replies to these messages; each is there as soon as it is asked for."""
        replies = []
        for number in [n for n in message_ids if n in self.waiting]:
            reply = self._answer(self.waiting.pop(number))
            if reply is not None:
                replies.append(StoredReply(number, reply.root, list(reply.objects), reply.objects.get))
        return replies

    def wait(self, seconds: float) -> None:
        """Wait: a reply may be missing at first where a test lets it."""
        time.sleep(seconds)

    def _answer(self, message: Message) -> Forged | None:
        """Return the objects of the reply that a site's app gives."""
        node = self.nodes[message.metadata.dst_node_id]
        if not node.online:
            return None
        self.sent.append(("down", message))

        def answer(message: Message) -> Message:
            context = Context(1, message.metadata.dst_node_id, node.config, RecordDict(), {})
            try:
                return node.app(message, context)
            except Exception as error:
                return Message(Error(APP_FAILED, f"{type(error).__name__}: {error}"), reply_to=message)

        reply = node.mishap(message, answer) if node.mishap else answer(message)
        if reply is None or isinstance(reply, Forged):
            return reply
        self.sent.append(("up", adapter.delivered(reply, f"reply-{message.metadata.message_id}")))
        return Forged(reply.object_id, adapter.objects_of(reply))
