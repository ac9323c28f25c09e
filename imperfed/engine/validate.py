"""The only check of what sites send and keep: names, shapes, types, and that every number is finite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from imperfed.core.batch import Tree
from imperfed.core.exchange import Exchange, Train, WeightedGradient
from imperfed.engine.failures import Failure, Misshapen, NotFinite

REFUSED = "its answer was refused: "


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


def check_answer(answer: Tree, exchange: Exchange, server: Tree) -> Failure | None:
    """Check what a site has sent, wherever the site is."""
    return check_shapes(answer, expected_parts(exchange, server)) or check_finite(answer)


def check_alike(answers: Mapping[int, Tree]) -> dict[int, Failure]:
    """Find the sites whose answers differ from most in names or shapes, and so cannot be stacked."""
    shapes = {k: tuple((name, tuple(t.shape)) for name, t in sorted(answers[k].items())) for k in sorted(answers)}
    usual = Counter(shapes.values()).most_common(1)[0][0] if shapes else ()
    return {
        k: Misshapen(f"{REFUSED}{dict(own)} differs from the others' {dict(usual)}")
        for k, own in shapes.items()
        if own != usual
    }


def _unlike(name: str, t: torch.Tensor, like: torch.Tensor) -> str:
    """Return how a tensor differs from the expected one in shape or type; empty if it does not."""
    if t.shape != like.shape:
        return f"{name!r} has shape {tuple(t.shape)}, expected {tuple(like.shape)}"
    if t.dtype != like.dtype:
        return f"{name!r} holds {t.dtype}, expected {like.dtype}"
    return ""
