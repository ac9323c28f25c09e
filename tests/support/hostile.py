"""Everything that can be wrong with one site's reply: every field of it, and the bytes in which it travels."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from flwr.app import Message, MetricRecord

from imperfed.core.batch import Tree
from imperfed.flower.messages.local_grid import Forged, LocalGrid
from imperfed.flower.messages.payload import ASKED, Payload, pack, unpack
from imperfed.flower.messages.stored_reply import head
from imperfed.flower.processes import adapter
from tests.support.forged import obj, rebuilt

Change = Callable[[Message], Message | Forged]

WORDS: dict[str, Any] = {
    "zero": 0, "minus one": -1, "large": 2**62, "very negative": -(2**63), "half": 0.5, "NaN": math.nan,
    "infinite": math.inf, "minus infinity": -math.inf, "huge": 1e308, "empty text": "", "text": "x" * 5000,
    "escapes": "\x1b[2J\x07\u202e", "yes": True, "bytes": b"\xff", "nothing": [], "one number": [1],
    "texts": ["a", "a"], "a text in a list": ["zzz"], "giant": [1, 2**62, 2**62], "real": [0.5], "a NaN": [math.nan],
    "many": [7] * 50_000,
}  # fmt: skip
"""What takes the place of a word."""
TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty": lambda t: t.reshape(-1)[:0],
    "a scalar": lambda t: t.reshape(-1)[:1].sum(),
    "one number more": lambda t: torch.cat([t.reshape(-1), torch.zeros(1, dtype=t.dtype)]),
    "one length more": lambda t: t[None],
    "nothing of much": lambda t: t.reshape(-1)[:0].reshape(0, 2**40),
    "double": lambda t: t.to(torch.float64 if t.dtype is not torch.float64 else torch.float32),
    "short": lambda t: t.to(torch.float16),
    "whole": lambda t: t.to(torch.int64 if t.dtype is not torch.int64 else torch.int32),
    "flags": lambda t: t.to(torch.bool if t.dtype is not torch.bool else torch.uint8),
    "NaN": lambda t: filled(t, math.nan),
    "infinite": lambda t: filled(t, math.inf),
    "huge": lambda t: filled(t, 3e38),
    "negative": lambda t: filled(t, -7.0),
}
"""What takes the place of a tensor."""
BODIES: dict[str, Any] = {
    "gigabytes": {"shape": [2**31]}, "beyond 64 bits": {"shape": [1, 2**62, 2**62]}, "negative": {"shape": [-1]},
    "a half": {"shape": [1.5]}, "text": {"shape": ["a"]}, "a list": {"shape": [[1]]}, "no list": {"shape": 7},
    "a million lengths": {"shape": [1] * 10**6}, "none": {"shape": None}, "of objects": {"dtype": "object"},
    "a number for a type": {"dtype": 7}, "pickled": {"stype": "numpy.ndarray"}, "no pieces": {"arraychunk_ids": []},
    "piece -1": {"arraychunk_ids": [-1]}, "piece 10^9": {"arraychunk_ids": [10**9]}, "half": {"arraychunk_ids": [0.5]},
    "a million pieces": {"arraychunk_ids": [0] * 10**6}, "more": {"more": {"deeper": []}},
}  # fmt: skip
"""What is changed in Flower's description of an array."""
NAMES = {"a surrogate": "\ud800", "an escape": "\x1b[2J", "a long name": "n" * 10_000, "no name": ""}
FURTHER = {f"further {i}": torch.zeros(1) for i in range(300)}
DEEP = b"[" * 200_000


def filled(t: torch.Tensor, value: float) -> torch.Tensor:
    """Return a tensor like this one with one value everywhere, as far as its type has it."""
    if not t.is_floating_point():
        value = 2**62 if value == 3e38 else int(value) if math.isfinite(value) else -(2**31)
    return torch.full_like(t, value if t.element_size() > 2 or t.is_floating_point() else 1)


def payload_changes(payload: Payload) -> Iterator[tuple[str, Callable[[Payload], Payload]]]:
    """Yield what can be changed in the words and the tensors of a reply, with a name."""
    for name in payload.words:
        yield f"{name}: missing", lambda p, n=name: replace(p, words={k: w for k, w in p.words.items() if k != n})
        for what, word in WORDS.items():
            yield f"{name}: {what}", lambda p, n=name, w=word: replace(p, words={**p.words, n: w})
        if isinstance(payload.words[name], list):
            yield f"{name}: twice", lambda p, n=name: replace(p, words={**p.words, n: [*p.words[n], *p.words[n]]})
    for part, tree in payload.trees.items():
        yield f"{part}: missing", lambda p, n=part: replace(p, trees={k: t for k, t in p.trees.items() if k != n})
        for name in tree:
            place = f"{part}/{name}"
            yield f"{place}: missing", lambda p, r=part, n=name: changed_tree(p, r, lambda t: without(t, n))
            yield (
                f"{place}: renamed",
                lambda p, r=part, n=name: changed_tree(p, r, lambda t: without(t, n) | {"other": t[n]}),
            )
            for what, make in TENSORS.items():
                yield (
                    f"{place}: {what}",
                    lambda p, r=part, n=name, f=make: changed_tree(p, r, lambda t: t | {n: f(t[n])}),
                )
        yield f"{part}: 300 more", lambda p, n=part: changed_tree(p, n, lambda t: t | FURTHER)


def changed_tree(payload: Payload, part: str, change: Callable[[Tree], Tree]) -> Payload:
    return replace(payload, trees={**payload.trees, part: change(dict(payload.trees[part]))})


def without(tree: Tree, name: str) -> Tree:
    return {k: t for k, t in tree.items() if k != name}


def object_changes() -> Iterator[tuple[str, Change]]:
    """Yield what can be changed in the objects into which Flower cuts a reply."""
    for what, more in BODIES.items():

        def described(children: list[str], body: bytes, more: Any = more) -> tuple[list[str], bytes]:
            return children, json.dumps(json.loads(body) | more).encode()

        yield f"array: {what}", lambda reply, f=described: rebuilt(reply, "Array", f)
    for kind in ("RecordDict", "ArrayRecord"):
        for what, name in NAMES.items():

            def renamed(children: list[str], body: bytes, name: str = name) -> tuple[list[str], bytes]:
                named = {name + own if name else "": one for own, one in json.loads(body).items()}
                return children, json.dumps(named).encode()

            yield f"{kind}: {what}", lambda reply, k=kind, f=renamed: rebuilt(reply, k, f)

        def twice(children: list[str], body: bytes) -> tuple[list[str], bytes]:
            pairs = ", ".join(f"{json.dumps(own)}: {json.dumps(one)}" for own, one in json.loads(body).items())
            return children, f"{{{pairs}, {pairs}}}".encode()

        yield f"{kind}: every name twice", lambda reply, k=kind, f=twice: rebuilt(reply, k, f)
    for kind in ("RecordDict", "ArrayRecord", "Array", "ConfigRecord"):
        for what, content in {"deep": DEEP, "null": b"null", "empty": b"", "a list": b"[]", "zeros": bytes(99)}.items():
            yield f"{kind}: {what}", lambda reply, k=kind, c=content: rebuilt(reply, k, lambda ids, body: (ids, c))
        yield f"{kind}: no parts", lambda reply, k=kind: rebuilt(reply, k, lambda ids, body: ([], body))
        yield f"{kind}: parts twice", lambda reply, k=kind: rebuilt(reply, k, lambda ids, body: (ids * 2, body))
    yield "another kind of record", other_record
    yield "itself as a part", itself


def other_record(reply: Message) -> Message:
    reply.content["figures"] = MetricRecord({"loss": 0.5})
    return reply


def itself(reply: Message) -> Forged:
    """A reply whose record names itself."""
    objects = adapter.objects_of(reply)
    name = next(one for one, content in objects.items() if head(content)[0] == "RecordDict")
    return Forged(reply.object_id, objects | {name: obj("RecordDict", [name], json.dumps({"up": name}).encode())})


def byte_changes(count: int, seed: int = 0) -> Iterator[tuple[str, Change]]:
    """Yield so many random changes to the bytes of one object of a reply."""
    for number in range(count):

        def damaged(reply: Message, draw: random.Random) -> Forged:
            objects = adapter.objects_of(reply)
            name = draw.choice(sorted(objects, key=lambda one: (head(objects[one])[0], len(objects[one]))))
            content = bytearray(objects[name])
            for _ in range(draw.choice((1, 1, 3))):
                at = draw.randrange(len(content))
                content[at] = draw.randrange(256)
            if draw.random() < 0.3:
                content = content[: draw.randrange(len(content))]
            return Forged(reply.object_id, objects | {name: bytes(content)})

        yield f"bytes {number}", lambda reply, n=number: damaged(reply, random.Random(1000 * seed + n))


def changes(reply: Message, count: int) -> dict[str, Change]:
    """Return all changes of a reply by name, and `count` of its bytes."""
    found: dict[str, Change] = {}
    for name, change in payload_changes(without_word(unpack(reply.content))):

        def made(reply: Message, change: Callable[[Payload], Payload] = change) -> Message:
            payload = unpack(reply.content)
            after = change(without_word(payload))
            words = {ASKED: payload.words[ASKED], **after.words}
            reply.content = pack(replace(after, words=words))
            return reply

        found[name] = made
    return found | dict(object_changes()) | dict(byte_changes(count))


def without_word(payload: Payload) -> Payload:
    """Return a payload without the word that binds it to its message; another test changes that one."""
    return replace(payload, words={name: word for name, word in payload.words.items() if name != ASKED})


@dataclass
class Cached:
    """A site's honest answers, each computed once, and changed as asked for."""

    change: Change | None = None
    wanted: Callable[[Message], bool] = lambda message: True
    answers: dict[object, Payload] = field(default_factory=dict)

    def __call__(self, message: Message, answer: Callable[[Message], Message]) -> Message | Forged:
        words = unpack(message.content).words
        kind, about = message.metadata.message_type, (words.get("exchange"), words.get("evaluate"), words.get("number"))
        if (kind, about) not in self.answers:
            self.answers[kind, about] = self.made_of_others(kind) or without_word(unpack(answer(message).content))
        kept = self.answers[kind, about]
        reply = Message(pack(replace(kept, words={**kept.words, ASKED: words[ASKED]})), reply_to=message)
        return self.change(reply) if self.change is not None and self.wanted(message) else reply

    def made_of_others(self, kind: str) -> Payload | None:
        """Return the figures of an earlier answer: there is no state from which others could be computed."""
        measured = [kept for kept in self.answers.values() if "metrics" in kept.words]
        if kind != "evaluate" or not measured:
            return Payload({"done": 1}) if kind == "query.leave" else None
        return Payload({name: word for name, word in measured[0].words.items() if name != "loss"})


def make_cached(grid: LocalGrid) -> dict[int, Cached]:
    """Let every site of a grid answer from its first answers."""
    cached = {number: Cached() for number in grid.nodes}
    for number, node in grid.nodes.items():
        node.mishap = cached[number]
    return cached
