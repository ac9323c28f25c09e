"""The only module that touches what Flower does not promise to keep: identities, and how a message is cut to travel."""

from __future__ import annotations

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["Run", "delivered", "identify"]


def identify(run: int, node: int) -> None:
    """Who creates messages in this process; Flower's own processes are told so when they start."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, node


def delivered(message: Message, number: str) -> Message:
    """A message as the other end gets it: cut into the objects that Flower sends, put together again, and numbered."""
    objects = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    there = inflate_object_from_contents(message.object_id, objects)
    assert isinstance(there, Message)
    there.metadata.__dict__["_message_id"] = number
    return there
