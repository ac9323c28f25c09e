"""The coordinator's messages in SuperLink: sent by Flower's grid, and fetched from its store object by object."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from imperfed.flower.messages.parcel import Parcel, is_small
from imperfed.flower.messages.payload import RefusedError
from imperfed.flower.messages.stored_reply import StoredReply
from imperfed.flower.processes.adapter import (
    ConfirmMessageReceivedRequest,
    PullAppMessagesRequest,
    PullObjectRequest,
    PushAppMessagesRequest,
)
from imperfed.flower.processes.bell import ANSWERED, SENT, Bell

BATCH = 4 * 2**20
"""Bytes of messages after which a new request begins."""
TOGETHER = 0.03  # seconds to wait for further replies after one has come


class SuperLinkMailbox:
    """A `Mailbox` on the grid that Flower hands to a ServerApp."""

    def __init__(self, grid: Grid, home: Path) -> None:
        self.grid: Any = grid  # what is used of it beyond `Grid` is not promised by Flower; a test looks for it
        self.sent, self.answered = Bell(home / SENT), Bell(home / ANSWERED)
        self.heard = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""
        nodes: Iterable[int] = self.grid.get_node_ids()
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages; return their ids, empty for those that could not be sent."""
        waiting = list(messages)
        small = [is_small(message) for message in waiting]
        ids = iter(list(self._push_whole([m for m, one in zip(waiting, small, strict=True) if one])))
        large = [m for m, one in zip(waiting, small, strict=True) if not one]
        others = iter(self.grid.push_messages(large) if large else [])
        self.sent.ring()
        return [next(ids if one else others, "") for one in small]

    def _push_whole(self, messages: Sequence[Message]) -> Iterator[str]:
        """Send messages that travel in one piece, several in a request."""
        batch: list[Parcel] = []
        for message in messages:
            batch.append(Parcel.of(message))
            if sum(one.record.ByteSize() for one in batch) > BATCH:
                yield from self._push_batch(batch)
                batch = []
        if batch:
            yield from self._push_batch(batch)

    def _push_batch(self, batch: Sequence[Parcel]) -> Sequence[str]:
        request = PushAppMessagesRequest(
            messages_list=[one.record for one in batch], message_object_trees=[one.tree for one in batch]
        )
        ids: Sequence[str] = self.grid._runtime_client.PushMessages(request).message_ids
        return ids

    def new_replies(self, message_ids: Sequence[str]) -> list[StoredReply]:
        """Return the replies that have arrived; SuperLink returns each once, and checked that its sender was asked."""
        self.heard = self.answered.rung()
        stored = self.grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        replies = []
        for record, tree in zip(stored.messages_list, stored.message_object_trees, strict=True):
            parcel, answers = Parcel(record, tree), record.metadata.reply_to_message_id
            if parcel.whole:
                replies.append(StoredReply(answers, tree.object_id, [], self._fetch, record=record))
                continue
            release = partial(self._release, record.metadata.message_id)
            replies.append(StoredReply(answers, tree.object_id, parcel.names(), self._fetch, release))
        return replies

    def wait(self, seconds: float) -> None:
        """Wait for replies, at most so long."""
        self.answered.wait(self.heard, seconds)
        time.sleep(min(TOGETHER, seconds))  # several come together

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
