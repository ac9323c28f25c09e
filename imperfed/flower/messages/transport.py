"""Messages to the sites, by name, and their replies, each with a timeout; nodes are identified by asking them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from flwr.app import Message

from imperfed.core.errors import QuorumError, RefusedBySiteError
from imperfed.core.foreign_text import printable
from imperfed.data.site_claims import check_claims
from imperfed.data.site_description import SiteInfo
from imperfed.engine.failures import Away, Crashed, Declined, Failure, Misshapen, Silent
from imperfed.engine.validate import LARGEST, REFUSED
from imperfed.flower.messages.answer_times import AnswerTimes, Waiting
from imperfed.flower.messages.charging import charged, why_refused
from imperfed.flower.messages.payload import ASKED, Payload, RefusedError, failure_of, new_salt, pack, size, unpack
from imperfed.flower.messages.run_info import RunInfo, info_from, other_rows
from imperfed.flower.messages.stored_reply import Mailbox, StoredReply

NODE_UNAVAILABLE = 5
"""SuperLink's code for a node that has left, or has shown no sign of life for long."""


@dataclass(frozen=True)
class Timeouts:
    """How long the coordinator waits, in seconds."""

    gather: float = 3600.0  # for all sites to connect before a run
    hello: float = 120.0  # for a node to say which site it is
    answer: float = 600.0  # for a site to answer in a round
    poll: float = 0.5  # between two polls for answers
    again: float = 20.0  # before a node that was not admitted is asked again which site it is
    back: float = 120.0  # for all sites to reconnect when a run is resumed; after that a quorum is enough
    repeat: float = (
        20.0  # before a site is asked again at the earliest; usually after a few times the usual answer time
    )


@dataclass
class Transport:
    """The connection to the sites. A site is known by its name; its Flower node id may change when it reconnects."""

    grid: Mailbox
    names: tuple[str, ...]
    greeting: RunInfo
    """What a new node is sent when it is asked which site it is."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    tell: Callable[[str], None] = lambda line: None
    """Writes a line to the log."""
    admitted: Mapping[str, int] | None = None
    """The node of each site's key, by the site's name; None: there are no keys, and a name is believed."""

    def __post_init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.infos: dict[str, SiteInfo] = {}
        self.online: set[int] = set()
        self.refused: dict[int, tuple[float, bool]] = {}
        self.declined: dict[str, str] = {}
        """Why sites refuse to take part, by name."""
        self.owners: dict[int, str] = {}
        self.bytes: dict[int, dict[str, int]] = {}
        self.times = AnswerTimes(self.timeouts.repeat)

    def gather(self, enough: int | None = None) -> list[SiteInfo]:
        """Wait for every site of the run; return what they hold, in the order of the names.

        `enough`: how many sites suffice to resume a run if the others do not reconnect within `timeouts.back`.
        """
        began, reported = time.monotonic(), [""]
        while missing := self.missing():
            waited = time.monotonic() - began
            if missing != reported:
                self.tell(f"waiting for {', '.join(missing)}")
                reported = missing
            if enough is not None and len(self.names) - len(missing) >= enough and waited > self.timeouts.back:
                self.tell(f"continuing without {', '.join(missing)}")
                break
            if waited > self.timeouts.gather:
                raise QuorumError(f"{', '.join(missing)} did not connect within {self.timeouts.gather:g} s")
            self.look()
            if len(self.declined) > len(self.names) - (enough or len(self.names)):
                reasons = "; ".join(self.declined.values())
                raise RefusedBySiteError(f"{reasons}. Change the settings, or ask the site to allow them")
            if self.missing():
                time.sleep(self.timeouts.poll)
        return [self.infos[name] for name in self.names]

    def missing(self) -> list[str]:
        """Return the sites that were not connected at the last look."""
        return [name for name in self.names if self.nodes.get(name) not in self.online]

    def look(self) -> set[int]:
        """Return the nodes that are online now; ask those not yet known which site they are."""
        before, self.online = self.online, set(self.grid.get_node_ids())
        if before - self.online:  # a node has left: one that was not admitted may replace it, or be the same site again
            self.refused.clear()
            # Whoever comes back is asked again what it holds.
            self.nodes = {name: node for name, node in self.nodes.items() if node in self.online}
        # A node that was not admitted must not hold up every round, nor fill the log: it is asked again after a pause.
        waiting = {n for n, (since, silent) in self.refused.items() if time.monotonic() - since < self._pause(silent)}
        new = sorted(self.online - set(self.nodes.values()) - waiting)
        for node, reply in self._exchange("query.hello", {n: self.greeting.payload() for n in new}, "hello").items():
            self._welcome(node, reply)
        return self.online

    def _welcome(self, node: int, reply: Payload | Failure) -> None:
        try:
            if isinstance(reply, Declined):
                owner = self._owner(node)
                reason = printable(reply.reason)
                self.declined[owner] = reason if self.admitted is None else f"{owner}: {reason}"
            if isinstance(reply, Failure):
                raise RefusedError(reply.reason)
            info = info_from(reply)
            self._check(info, node)
        except Exception as error:  # whatever it said, the others are admitted all the same
            self.tell(f"{self._known(node)} is not admitted: {why_refused(error)}")
            self.refused[node] = time.monotonic(), isinstance(reply, Silent)
            return
        self.tell(f"{info.name} has {'reconnected' if info.name in self.infos else 'connected'}, with {info.rows} rows")
        self.nodes[info.name], self.owners[node] = node, info.name
        self.infos.setdefault(info.name, info)

    def _pause(self, silent: bool) -> float:
        """Return how long not to ask a node that was not admitted; asking a silent one costs a whole timeout."""
        return self.timeouts.hello if silent else self.timeouts.again

    def _check(self, info: SiteInfo, node: int) -> None:
        if self.admitted is not None and self.admitted.get(info.name) != node:
            raise RefusedError(f"it claims to be {info.name!r}, but its key is not that site's")
        if info.name not in self.names:
            raise RefusedError(f"{info.name!r} is not a site of this run: {', '.join(self.names)}")
        if self.nodes.get(info.name) in self.online:
            raise RefusedError(f"{info.name!r} is already connected")
        before = self.infos.get(info.name, info)
        if (before.rows, before.held_out, before.digest) != (info.rows, info.held_out, info.digest):
            rows = before.rows + before.held_out, info.rows + info.held_out
            raise RefusedError(other_rows(info.name, *rows))
        check_claims(info)

    def send(
        self, kind: str, payloads: Mapping[int, Payload], about: str, limit: int = LARGEST
    ) -> dict[int, Payload | Failure]:
        """Send messages to sites by number; return their answers. A site that is not connected or silent has failed.

        `limit`: the most bytes that an answer may take.
        """
        online = self.look()
        nodes = {self.nodes[self.names[k]]: k for k in payloads if self.nodes.get(self.names[k]) in online}
        replies = self._exchange(kind, {node: payloads[k] for node, k in nodes.items()}, about, limit)
        answers: dict[int, Payload | Failure] = dict.fromkeys(payloads, Away("it is not connected"))
        return answers | {nodes[node]: reply for node, reply in replies.items()}

    def _exchange(
        self, kind: str, payloads: Mapping[int, Payload], about: str, limit: int = LARGEST
    ) -> dict[int, Payload | Failure]:
        """Push, then pull until all have answered or the timeout has passed. Later answers are ignored."""
        if not payloads:
            return {}
        timeout = self.timeouts.hello if kind == "query.hello" else self.timeouts.answer
        began, answers, arriving = time.monotonic(), dict[int, Payload | Failure](), dict[str, StoredReply]()
        until = {node: began + self.times.patience(self._name(node), kind, timeout) for node in payloads}
        waiting = Waiting(began, dict(until), self.times.first_after(kind))
        sent = self._push(kind, payloads, about, timeout)
        for node in payloads.keys() - {node for node, _ in sent.values()}:
            answers[node] = Failure("its message could not be sent")
            waiting.answered(node)
        while waiting.until:
            for message_id, reply in self._arrived(sent, arriving, limit):
                node, asked = sent.pop(message_id)
                lost = isinstance(reply, Failure) or reply.has_error()
                if node not in waiting.until or (lost and any(node == other for other, _ in sent.values())):
                    continue  # too late, or asked again meanwhile
                answers[node] = charged(partial(self._opened, node, reply, asked))
                waiting.answered(node)
                self._note(kind, about, node, answers[node], time.monotonic() - began)
            now = time.monotonic()
            for node in waiting.give_up(now):
                answers[node] = Silent(f"it did not answer within {until[node] - began:g} s")
                self.times.silent(self._name(node))
            if again := waiting.due(now, self.online - {sent[message_id][0] for message_id in arriving}):
                self.tell(f"{about}: asking {', '.join(map(self._name, again))} again after {now - began:.1f} s")
                sent |= self._push(kind, {node: payloads[node] for node in again}, about, timeout)
            if waiting.until:
                self.grid.wait(self.timeouts.poll)
        for stored in arriving.values():
            stored.release()
        return answers

    def _opened(self, node: int, reply: Message | Failure, asked: str) -> Payload | Failure:
        """Count and read a reply."""
        self._count("up", node, reply)
        return read(reply, asked)

    def _push(
        self, kind: str, payloads: Mapping[int, Payload], about: str, timeout: float
    ) -> dict[str, tuple[int, str]]:
        """Send messages; return, by each one's id, its node and the word that the answer must repeat."""
        salt, asked = new_salt(), {node: secrets.token_hex(8) for node in payloads}
        bound = {node: replace(one, words={**one.words, ASKED: asked[node]}) for node, one in payloads.items()}
        messages = [Message(pack(one, salt), node, kind, ttl=timeout, group_id=about) for node, one in bound.items()]
        for message in messages:
            self._count("down", message.metadata.dst_node_id, message)
        ids = list(self.grid.push_messages(messages))
        return {message_id: (node, asked[node]) for message_id, node in zip(ids, bound, strict=False) if message_id}

    def _arrived(
        self, sent: Mapping[str, object], arriving: dict[str, StoredReply], limit: int
    ) -> list[tuple[str, Message | Failure]]:
        """Return the replies that have come to their end, by the message that they answer.

        A site that sends its answer slowly, or never to the end, holds up no one else.
        """
        new = self.grid.new_replies([message_id for message_id in sent if message_id not in arriving])
        arriving |= {stored.answers: stored for stored in new if stored.answers in sent}
        whole = [(key, stored, reply) for key, stored in arriving.items() if (reply := stored.read(limit)) is not None]
        for message_id, stored, _ in whole:
            del arriving[message_id]
            stored.release()
        return [(message_id, reply) for message_id, _, reply in whole]

    def _note(self, kind: str, about: str, node: int, answer: Payload | Failure, seconds: float) -> None:
        outcome = "failed" if isinstance(answer, Failure) else "answered"
        self.tell(f"{about}: {self._name(node)} {outcome} after {seconds:.1f} s")
        self.times.answered(self._name(node))
        if not isinstance(answer, Failure):
            self.times.note(kind, seconds)

    def _owner(self, node: int) -> str:
        """Return the site whose key a node has."""
        return next((name for name, own in (self.admitted or {}).items() if own == node), self._name(node))

    def _known(self, node: int) -> str:
        """Return a node that is not admitted, with the site whose key it has."""
        owner = self._owner(node)
        return owner if owner == f"node {node}" else f"node {node} ({owner})"

    def _name(self, node: int) -> str:
        return self.owners.get(node, f"node {node}")

    def _count(self, way: str, node: int, message: Message | Failure) -> None:
        ways = self.bytes.setdefault(node, {"down": 0, "up": 0})
        ways[way] += size(message.content) if isinstance(message, Message) and message.has_content() else 0

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return the bytes to and from every site since this process started, over all node ids it has had."""
        total = {name: {"down": 0, "up": 0} for name in self.names}
        for node, name in self.owners.items():
            for way, count in self.bytes[node].items():
                total[name][way] += count
        return total


def read(reply: Message | Failure, asked: str) -> Payload | Failure:
    """Return the content of a reply, or why it has none. `asked`: the word that it must repeat."""
    if isinstance(reply, Failure):
        return reply
    if reply.has_error():
        kind = Away if reply.error.code == NODE_UNAVAILABLE else Crashed
        return kind(f"no answer: {printable(reply.error.reason or f'error {reply.error.code}')}")
    payload = unpack(reply.content)
    if payload.words.get(ASKED) != asked:
        return Misshapen(f"{REFUSED}it answers another message")
    words = {name: word for name, word in payload.words.items() if name != ASKED}
    return failure_of(payload) or replace(payload, words=words)
