"""The only check of what sites send and keep: names, shapes, types, and that every number is finite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from imperfed.core.batch import Tree
from imperfed.core.exchange import Exchange, Query, Train, WeightedGradient
from imperfed.core.foreign_text import LONGEST, printable
from imperfed.engine.failures import Failure, Misshapen, NotFinite
from imperfed.engine.state import nbytes

REFUSED = "its answer was refused: "
LARGEST = 64 * 2**20
"""Bytes that any answer may take."""
PER_ROW = 1024
"""Further bytes for each of a site's rows, where it answers about rows, such as with keyed digests."""
MULTIPLE = 8
"""And as often what it was sent: methods answer with the model, a momentum, a control variate."""


LARGEST_NUMBER = 1e15
"""The largest magnitude of a number in an answer from elsewhere: squares and sums of such are finite in float32."""
LARGEST_SUM = LARGEST_NUMBER**2
"""The same in a repair, where answers are themselves sums of squares."""


def largest_answer(down: Tree, rows: int, features: int = 0, classes: int = 0) -> int:
    """Return the most bytes that an answer may take; a few times what any method needs, so that none is refused.

    `features`, `classes`: in a repair, whose answers hold second moments and weights of features, at most 4096.
    """
    wide = min(features, 4096)
    return LARGEST + MULTIPLE * nbytes(down) + PER_ROW * min(rows, 10**6) + 8 * wide * (wide + 64 * classes)


def expected_parts(exchange: Exchange, server: Tree) -> Tree:
    """Return tensors with the names, shapes and types that an answer to this exchange must have; it may have more."""
    if isinstance(exchange, Train):
        return {name: server[name] for name in ("w", "buffers")}
    return {"g": server["w"]} if isinstance(exchange, WeightedGradient) else {}


def check_shapes(answer: Tree, expected: Tree) -> Misshapen | None:
    """Find a part of an answer that is missing or differs from the expected one in shape or type."""
    for name, like in expected.items():
        if name not in answer:
            return Misshapen(f"{REFUSED}{name!r} is missing")
        if problem := _unlike(name, answer[name], like):
            return Misshapen(REFUSED + problem)
    return None


def check_memory(memory: Tree, known: Tree) -> Misshapen | None:
    """Find a part of a site's new memory that is new or has changed its shape or type."""
    for name, t in memory.items():
        if name not in known:
            return Misshapen(f"{REFUSED}{name!r} is not in the memory that init_site returned")
        if problem := _unlike(name, t, known[name]):
            return Misshapen(REFUSED + problem)
    return None


def check_finite(*trees: Tree) -> NotFinite | None:
    """Find a part that holds NaN or infinity."""
    for tree in trees:
        for name, t in tree.items():
            if not torch.isfinite(t).all():
                return NotFinite(f"{REFUSED}{name!r} is not finite")
    return None


def check_size(answer: Tree, largest: float = LARGEST_NUMBER) -> NotFinite | None:
    """Find a part with numbers so large that what is made of them would not be finite, whatever the others sent."""
    for name, t in answer.items():
        if t.is_floating_point() and t.numel() and largest < float(t.abs().max()) < torch.inf:
            return NotFinite(f"{REFUSED}{name!r} holds numbers beyond {largest:g}")
    return None


def check_answer(answer: Tree, exchange: Exchange, server: Tree) -> Failure | None:
    """Check what a site has sent, from this process or elsewhere."""
    return check_shapes(answer, expected_parts(exchange, server)) or check_finite(answer)


def check_alike(answers: Mapping[int, Tree]) -> dict[int, Failure]:
    """Find the sites whose answers differ from most in names, shapes or types, and so cannot be stacked."""
    shapes = {
        k: tuple((name, (tuple(t.shape), str(t.dtype))) for name, t in sorted(answers[k].items()))
        for k in sorted(answers)
    }
    usual = Counter(shapes.values()).most_common(1)[0][0] if shapes else ()
    return {
        k: Misshapen(f"{REFUSED}{_shown(own)} differs from the others' {_shown(usual)}")
        for k, own in shapes.items()
        if own != usual
    }


def _shown(shapes: Sequence[tuple[str, object]]) -> str:
    return printable(str(dict(shapes)), LONGEST // 2)


def check_parts(query: Query, downs: Sequence[Tree], answers: Sequence[Tree], any_length: bool) -> dict[int, Failure]:
    """Find the sites whose answers to a query before training cannot be put together with those of most sites.

    Nothing says in advance what an answer holds, so what most sites sent is the standard: names, types and shapes.
    `any_length`: whether sites may differ in the first length of a tensor.
    """
    usual = Counter(frozenset(answer) for answer in answers if answer or not query.partial)
    names = usual.most_common(1)[0][0] if usual else frozenset()
    forms = {
        name: Counter(_form(a[name], any_length) for a in answers if name in a).most_common(1)[0][0] for name in names
    }
    failures: dict[int, Failure] = {}
    for k, answer in enumerate(answers):
        may_lack = query.partial and not downs[k]
        if wrong := sorted(answer.keys() - names or (set() if may_lack else names - answer.keys())):
            said = "has no" if wrong[0] in names else "should not have"
            failures[k] = Misshapen(f"{REFUSED}it {said} {printable(wrong[0])!r}")
        elif unlike := [name for name in answer if _form(answer[name], any_length) != forms[name]]:
            own, expected = _form(answer[unlike[0]], any_length), forms[unlike[0]]
            failures[k] = Misshapen(f"{REFUSED}{unlike[0]!r} is {own}, and {expected} at most sites")
        elif not_finite := check_finite(answer):
            failures[k] = not_finite
    return failures


def _form(t: torch.Tensor, any_length: bool) -> str:
    """Return the type and shape of a tensor in words, without its first length if any will do."""
    lengths = [str(length) for length in t.shape]
    shape = ["any", *lengths[1:]] if any_length and lengths else lengths
    return f"{str(t.dtype).removeprefix('torch.')} [{', '.join(shape)}]"


def _unlike(name: str, t: torch.Tensor, like: torch.Tensor) -> str:
    """Return how a tensor differs from the expected one in shape or type; empty if it does not."""
    if t.shape != like.shape:
        return f"{name!r} has shape {tuple(t.shape)}, expected {tuple(like.shape)}"
    if t.dtype != like.dtype:
        return f"{name!r} holds {t.dtype}, expected {like.dtype}"
    return ""
