"""What SuperLink lacks: messages in one piece, and no trust in what a site says about itself and its objects.

Flower's store in a database costs ten times as much per request, and a run keeps its own checkpoints. But it is in that
store only that Flower refuses an object with other parts than at first; without that, a few small trees that name each
other would stand for a tree that no memory holds.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from imperfed.flower.messages.stored_reply import MOST_OBJECTS
from imperfed.flower.processes import adapter

log = logging.getLogger("imperfed.superlink")


def guard_trees() -> None:
    """Let the store refuse trees that are too large, and objects that have other parts than before."""
    store = adapter.InMemoryObjectStore
    usual = store.preregister

    def preregister(self: Any, run_id: int, tree: Any) -> list[str]:
        with self.lock_store:
            check_tree(tree, parts_of(self, tree))
            missing: list[str] = usual(self, run_id, tree)
            return missing

    store.preregister = preregister


def parts_of(store: Any, tree: Any) -> dict[str, set[str]]:
    """Return the parts of those objects of a tree that the store has already."""
    names = {part.object_id for part in adapter.iterate_object_tree(tree)}
    return {name: set(store.store[name].child_object_ids) for name in names & store.store.keys()}


def check_tree(tree: Any, parts: dict[str, set[str]]) -> None:
    """Raise an error if a tree is too large or an object has different parts in two places; `parts`: those known."""
    for count, one in enumerate(adapter.iterate_object_tree(tree), 1):
        children = [child.object_id for child in one.children]
        if count > MOST_OBJECTS:
            raise ValueError(f"a message of more than {MOST_OBJECTS} objects")
        if len(set(children)) < len(children) or parts.setdefault(one.object_id, set(children)) != set(children):
            raise ValueError(f"object {one.object_id} has other parts in another place")


def refuse_contradiction(state: Any, message: Any, tree: Any) -> None:
    """Refuse a message for its tree of objects before it is stored: without objects it could never be read."""
    try:
        with state.object_store.lock_store:
            check_tree(tree, parts_of(state.object_store, tree))
    except ValueError as error:
        log.warning("refused a message of node %d: %s", message.metadata.src_node_id, error)
        raise


def take_whole_messages() -> None:
    """Let a message whose record holds its content be stored without objects."""
    state, store = adapter.InMemoryLinkState, adapter.InMemoryObjectStore
    with_objects, usual_tree = state.store_message_and_object_tree, store.get_object_tree
    whole: set[str] = set()

    def store_message(self: Any, message: Any, tree: Any, session: str) -> tuple[bool, list[str]]:
        number = message.metadata.message_id
        if tree.object_id != number:
            raise ValueError("the objects are not those of the message")
        if not message.has_error() and not message.content:
            refuse_contradiction(self, message, tree)
            kept: tuple[bool, list[str]] = with_objects(self, message, tree, session)
            return kept
        self._object_push_sessions.pop(session, None)  # nothing will be pushed
        keep = self.store_message_res if message.metadata.reply_to_message_id else self.store_message_ins
        with self.lock:  # until it is known as whole, no one may fetch it
            stored = keep(message) is not None
            if stored:
                whole.add(number)
        return stored, []

    def get_object_tree(self: Any, name: str) -> Any:
        if name in whole:  # it is asked for once, when the message is delivered
            whole.discard(name)
            return adapter.ObjectTree(object_id=name)
        return usual_tree(self, name)

    state.store_message_and_object_tree, store.get_object_tree = store_message, get_object_tree


def let_sites_only_answer() -> None:
    """Let a site push nothing but its own answers.

    Flower knows by its key which node calls, and believes what the message says about who has sent it. One that says it
    is from SuperLink would be delivered to another site, or to the sender itself, as if the run had sent it.
    """
    handlers = import_module(adapter.NAMES["push_messages"])
    usual = vars(handlers)["push_messages"]

    def push_messages(request: Any, state: Any) -> Any:
        if why := misleading(request):
            node = request.node.node_id
            log.warning("refused a message of node %d: %s", node, why)
            raise adapter.FlowerError(adapter.ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, f"node {node}: {why}", why)
        return usual(request, state)

    vars(handlers)["push_messages"] = push_messages


def misleading(request: Any) -> str:
    """Return why a site may not push what it pushes; empty if it may."""
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        return "one message with its objects is pushed at a time"
    metadata = request.messages_list[0].metadata
    if metadata.src_node_id != request.node.node_id:
        return f"it says that it is from node {metadata.src_node_id}"
    return "" if metadata.reply_to_message_id else "it answers no message"
