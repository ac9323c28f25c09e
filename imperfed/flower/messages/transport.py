"""Messages to sites by their names and back again, each within its time; who is there is found out by asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from imperfed.core.errors import QuorumError
from imperfed.data.site_files import SiteInfo
from imperfed.engine.failures import Away, Crashed, Failure, Misshapen, Silent
from imperfed.engine.validate import REFUSED
from imperfed.flower.messages.payload import Payload, RefusedError, failure_of, pack, size, unpack
from imperfed.flower.messages.run_info import RunInfo, info_from


@dataclass(frozen=True)
class Timeouts:
    """How long the coordinator waits, in seconds."""

    gather: float = 3600.0  # for all sites to be there before a run
    hello: float = 120.0  # for a site to say who it is
    answer: float = 3600.0  # for a site to answer in a round
    poll: float = 0.5  # between two looks for answers
    again: float = 20.0  # before a site that was not taken in is asked again who it is
    back: float = 120.0  # for all sites to be back when a run goes on; then those that are there must do


@dataclass
class Transport:
    """The way to the sites. A site is known by the name it gives; its number at Flower may change when it returns."""

    grid: Grid
    names: tuple[str, ...]
    greeting: RunInfo
    """What a node that is new is told when it is asked who it is."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    tell: Callable[[str], None] = lambda line: None
    """A line for the log."""
    admitted: Mapping[str, int] | None = None
    """The nodes whose keys the sites hold, by name; None: without keys a name is believed."""

    def __post_init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.infos: dict[str, SiteInfo] = {}
        self.there: set[int] = set()
        self.refused: dict[int, tuple[float, bool]] = {}
        self.owners: dict[int, str] = {}
        self.bytes: dict[int, dict[str, int]] = {}

    def gather(self, enough: int | None = None) -> list[SiteInfo]:
        """Wait for every site of the run; their cards, in the order of the names.

        `enough`: so many sites will do in a run that goes on, if the others do not come back for a while.
        """
        began, told = time.monotonic(), [""]
        while missing := [name for name in self.names if name not in self.nodes]:
            waited = time.monotonic() - began
            if missing != told:
                self.tell(f"waiting for {', '.join(missing)}")
                told = missing
            if enough is not None and len(self.nodes) >= enough and waited > self.timeouts.back:
                self.tell(f"going on without {', '.join(missing)}")
                break
            if waited > self.timeouts.gather:
                raise QuorumError(f"{', '.join(missing)} did not come within {self.timeouts.gather:g} s")
            self.look()
            if any(name not in self.nodes for name in missing):
                time.sleep(self.timeouts.poll)
        return [self.infos[name] for name in self.names]

    def look(self) -> set[int]:
        """The nodes that are there now; those that are no site yet are asked who they are."""
        before, self.there = self.there, set(self.grid.get_node_ids())
        if before - self.there:  # somebody has left: one of those not taken in may stand for it, or be it come back
            self.refused.clear()
        # One that was not taken in must not hold up every round, nor fill the log: it is asked again after a while.
        waiting = {n for n, (since, silent) in self.refused.items() if time.monotonic() - since < self._pause(silent)}
        new = sorted(self.there - set(self.nodes.values()) - waiting)
        for node, given in self._exchange("query.hello", {n: self.greeting.payload() for n in new}, "hello").items():
            self._welcome(node, given)
        return self.there

    def _welcome(self, node: int, given: Payload | Failure) -> None:
        try:
            if isinstance(given, Failure):
                raise RefusedError(given.reason)
            info = info_from(given)
            self._check(info, node)
        except RefusedError as error:
            self.tell(f"node {node} is not taken in: {error}")
            self.refused[node] = time.monotonic(), isinstance(given, Silent)
            return
        self.tell(f"{info.name} is there{' again' if info.name in self.infos else ''}, with {info.rows} rows")
        self.nodes[info.name], self.owners[node] = node, info.name
        self.infos.setdefault(info.name, info)

    def _pause(self, silent: bool) -> float:
        """How long a node that was not taken in is left alone; one that is silent takes as long to ask again."""
        return self.timeouts.hello if silent else self.timeouts.again

    def _check(self, info: SiteInfo, node: int) -> None:
        if self.admitted is not None and self.admitted.get(info.name) != node:
            raise RefusedError(f"it says it is {info.name!r}, but its key is not that site's")
        if info.name not in self.names:
            raise RefusedError(f"{info.name!r} is no site of this run: {', '.join(self.names)}")
        if self.nodes.get(info.name) in self.there:
            raise RefusedError(f"{info.name!r} is there already")
        if info.name in self.infos and self.infos[info.name].rows != info.rows:
            raise RefusedError(f"{info.name!r} held {self.infos[info.name].rows} rows, and now {info.rows}")

    def send(self, kind: str, payloads: Mapping[int, Payload], about: str) -> dict[int, Payload | Failure]:
        """Letters to sites by their numbers, and their answers; a site that is not there, or is silent, has failed."""
        there = self.look()
        nodes = {self.nodes[self.names[k]]: k for k in payloads if self.nodes.get(self.names[k]) in there}
        given = self._exchange(kind, {node: payloads[k] for node, k in nodes.items()}, about)
        answers: dict[int, Payload | Failure] = dict.fromkeys(payloads, Away("it is not connected"))
        return answers | {nodes[node]: payload for node, payload in given.items()}

    def _exchange(self, kind: str, payloads: Mapping[int, Payload], about: str) -> dict[int, Payload | Failure]:
        """Push, then pull until all have answered or the time is over. Later answers are never looked at."""
        if not payloads:
            return {}
        within = self.timeouts.hello if kind == "query.hello" else self.timeouts.answer
        messages = [
            Message(pack(payload), node, kind, ttl=within, group_id=about) for node, payload in payloads.items()
        ]
        for message in messages:
            self._count("down", message.metadata.dst_node_id, message)
        numbers = list(self.grid.push_messages(messages))
        waiting = {number: node for number, node in zip(numbers, payloads, strict=False) if number}
        answers: dict[int, Payload | Failure] = {node: Failure("its message could not be sent") for node in payloads}
        answers |= dict.fromkeys(waiting.values(), Silent(f"it gave no answer within {within:g} s"))
        began = time.monotonic()
        while waiting and time.monotonic() - began <= within:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = read(reply)
                    self._count("up", node, reply)
                    how = "failed" if isinstance(answers[node], Failure) else "answered"
                    self.tell(f"{about}: {self._name(node)} {how} after {time.monotonic() - began:.1f} s")
            if waiting:
                time.sleep(self.timeouts.poll)
        return answers

    def _name(self, node: int) -> str:
        return self.owners.get(node, f"node {node}")

    def _count(self, way: str, node: int, message: Message) -> None:
        ways = self.bytes.setdefault(node, {"down": 0, "up": 0})
        ways[way] += size(message.content) if message.has_content() else 0

    def traffic(self) -> dict[str, dict[str, int]]:
        """Bytes to and from every site in this process's time, under all numbers it has had."""
        total = {name: {"down": 0, "up": 0} for name in self.names}
        for node, name in self.owners.items():
            for way, count in self.bytes[node].items():
                total[name][way] += count
        return total


def read(reply: Message) -> Payload | Failure:
    """Return what a reply says, or why it is none."""
    if reply.has_error():
        return Crashed(f"no answer: {reply.error.reason or f'error {reply.error.code}'}")
    try:
        payload = unpack(reply.content)
    except RefusedError as error:
        return Misshapen(f"{REFUSED}{error}")
    return failure_of(payload) or payload
