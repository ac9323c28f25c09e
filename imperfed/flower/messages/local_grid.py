"""A grid in one process: the real apps and the real serialisation, without a network. For tests, and to see it work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from imperfed.flower.processes import adapter

SERVER = 1
"""The node number of the coordinator, as Flower has it."""
APP_FAILED = 2
"""Flower's code of an error inside a ClientApp."""

Mishap = Callable[[Message, Callable[[Message], Message]], Message | None]
"""What happens to a message instead of being answered: from it and the way to its answer to a reply, or none."""


@dataclass
class Node:
    """One site: its app, its settings, and what goes wrong there."""

    app: ClientApp
    config: dict[str, str | int | float | bool]
    mishap: Mishap | None = None
    online: bool = True


@dataclass
class LocalGrid(Grid):
    """Every message is answered when it is pulled, by calling the site's app."""

    nodes: dict[int, Node]
    sent: list[tuple[str, Message]] = field(default_factory=list)
    """Every message that was delivered or answered, as it came out of serialisation, with "down" or "up"."""
    waiting: dict[str, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        adapter.identify(run=1, node=SERVER)
        self.pushed = 0

    def get_node_ids(self) -> list[int]:
        """The nodes that are there."""
        return [number for number, node in self.nodes.items() if node.online]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Take messages; their numbers."""
        numbers = []
        for message in messages:
            self.pushed += 1
            numbers.append(f"message-{self.pushed}")
            self.waiting[numbers[-1]] = adapter.delivered(message, numbers[-1])
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers to these messages that have come."""
        replies = []
        for number in [n for n in message_ids if n in self.waiting]:
            reply = self._answer(self.waiting.pop(number))
            if reply is not None:
                replies.append(reply)
        return replies

    def _answer(self, message: Message) -> Message | None:
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
        if reply is None:
            return None
        reply = adapter.delivered(reply, f"reply-{message.metadata.message_id}")
        self.sent.append(("up", reply))
        return reply

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push and pull at once."""
        return self.pull_messages(self.push_messages(messages))

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message of the coordinator's."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def set_run(self, run: adapter.Run) -> None:
        """There is one run."""

    @property
    def run(self) -> adapter.Run:
        """There is one run, and nothing to say of it."""
        raise NotImplementedError
