"""The coordinator's messages in SuperLink: sent by Flower's grid, and fetched from its store object by object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from imperfed.flower.messages.payload import RefusedError
from imperfed.flower.messages.stored_reply import StoredReply
from imperfed.flower.processes.adapter import (
    ConfirmMessageReceivedRequest,
    PullAppMessagesRequest,
    PullObjectRequest,
    iterate_object_tree,
)


class SuperLinkMailbox:
    """A `Mailbox` on the grid that Flower hands to a ServerApp."""

    def __init__(self, grid: Grid) -> None:
        self.grid: Any = grid  # what is used of it beyond `Grid` is not promised by Flower; a test looks for it

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""
        nodes: Iterable[int] = self.grid.get_node_ids()
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids."""
        ids: Iterable[str] = self.grid.push_messages(messages)
        return ids

    def new_replies(self, message_ids: Sequence[str]) -> list[StoredReply]:
        """Return the replies that have arrived; SuperLink returns each once, and checked that its sender was asked."""
        stored = self.grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        replies = []
        for message, tree in zip(stored.messages_list, stored.message_object_trees, strict=True):
            root = message.metadata.message_id
            objects = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
            release = partial(self._release, root)
            replies.append(StoredReply(message.metadata.reply_to_message_id, root, objects, self._fetch, release))
        return replies

    def _fetch(self, name: str) -> bytes | None:
        request = PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=name)
        found = self.grid._runtime_client.PullObject(request)
        if not found.object_found:
            raise RefusedError("a part of it was not sent in time")
        content: bytes = found.object_content
        return content if found.object_available else None

    def _release(self, root: str) -> None:
        run = self.grid.run.run_id
        request = ConfirmMessageReceivedRequest(node=self.grid.node, run_id=run, message_object_id=root)
        with suppress(httpx.HTTPError):  # it is forgotten in the end anyway
            self.grid._runtime_client.ConfirmMessageReceived(request)
