"""Messages to the sites, by name, and their replies, each with a timeout; nodes are identified by asking them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from imperfed.core.errors import QuorumError, RefusedBySiteError
from imperfed.data.site_files import SiteInfo
from imperfed.engine.failures import Away, Crashed, Declined, Failure, Misshapen, Silent
from imperfed.engine.validate import REFUSED
from imperfed.flower.messages.payload import Payload, RefusedError, failure_of, pack, size, unpack
from imperfed.flower.messages.run_info import RunInfo, info_from


@dataclass(frozen=True)
class Timeouts:
    """How long the coordinator waits, in seconds."""

    gather: float = 3600.0  # for all sites to connect before a run
    hello: float = 120.0  # for a node to say which site it is
    answer: float = 3600.0  # for a site to answer in a round
    poll: float = 0.5  # between two polls for answers
    again: float = 20.0  # before a node that was not admitted is asked again which site it is
    back: float = 120.0  # for all sites to reconnect when a run is resumed; after that a quorum is enough


@dataclass
class Transport:
    """The connection to the sites. A site is known by its name; its Flower node id may change when it reconnects."""

    grid: Grid
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
                self.declined[owner] = reply.reason if self.admitted is None else f"{owner}: {reply.reason}"
            if isinstance(reply, Failure):
                raise RefusedError(reply.reason)
            info = info_from(reply)
            self._check(info, node)
        except RefusedError as error:
            self.tell(f"node {node} is not admitted: {error}")
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
        if info.name in self.infos and self.infos[info.name].rows != info.rows:
            raise RefusedError(f"{info.name!r} had {self.infos[info.name].rows} rows, and now has {info.rows}")

    def send(self, kind: str, payloads: Mapping[int, Payload], about: str) -> dict[int, Payload | Failure]:
        """Send messages to sites by number; return their answers. A site that is not connected or silent has failed."""
        online = self.look()
        nodes = {self.nodes[self.names[k]]: k for k in payloads if self.nodes.get(self.names[k]) in online}
        replies = self._exchange(kind, {node: payloads[k] for node, k in nodes.items()}, about)
        answers: dict[int, Payload | Failure] = dict.fromkeys(payloads, Away("it is not connected"))
        return answers | {nodes[node]: reply for node, reply in replies.items()}

    def _exchange(self, kind: str, payloads: Mapping[int, Payload], about: str) -> dict[int, Payload | Failure]:
        """Push, then pull until all have answered or the timeout has passed. Later answers are ignored."""
        if not payloads:
            return {}
        timeout = self.timeouts.hello if kind == "query.hello" else self.timeouts.answer
        messages = [
            Message(pack(payload), node, kind, ttl=timeout, group_id=about) for node, payload in payloads.items()
        ]
        for message in messages:
            self._count("down", message.metadata.dst_node_id, message)
        ids = list(self.grid.push_messages(messages))
        waiting = {message_id: node for message_id, node in zip(ids, payloads, strict=False) if message_id}
        answers: dict[int, Payload | Failure] = {node: Failure("its message could not be sent") for node in payloads}
        answers |= dict.fromkeys(waiting.values(), Silent(f"it did not answer within {timeout:g} s"))
        began = time.monotonic()
        while waiting and time.monotonic() - began <= timeout:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = read(reply)
                    self._count("up", node, reply)
                    outcome = "failed" if isinstance(answers[node], Failure) else "answered"
                    self.tell(f"{about}: {self._name(node)} {outcome} after {time.monotonic() - began:.1f} s")
            if waiting:
                time.sleep(self.timeouts.poll)
        return answers

    def _owner(self, node: int) -> str:
        """Return the site whose key a node has."""
        return next((name for name, own in (self.admitted or {}).items() if own == node), self._name(node))

    def _name(self, node: int) -> str:
        return self.owners.get(node, f"node {node}")

    def _count(self, way: str, node: int, message: Message) -> None:
        ways = self.bytes.setdefault(node, {"down": 0, "up": 0})
        ways[way] += size(message.content) if message.has_content() else 0

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return the bytes to and from every site since this process started, over all node ids it has had."""
        total = {name: {"down": 0, "up": 0} for name in self.names}
        for node, name in self.owners.items():
            for way, count in self.bytes[node].items():
                total[name][way] += count
        return total


def read(reply: Message) -> Payload | Failure:
    """Return the content of a reply, or why it has none."""
    if reply.has_error():
        return Crashed(f"no answer: {reply.error.reason or f'error {reply.error.code}'}")
    try:
        payload = unpack(reply.content)
    except RefusedError as error:
        return Misshapen(f"{REFUSED}{error}")
    return failure_of(payload) or payload
