"""The meaning of settings: the comments after the fields of dataclasses, the only place where they are described."""

from __future__ import annotations

import ast
import inspect
from dataclasses import is_dataclass
from functools import cache
from typing import Any


def descriptions(schema: type[Any]) -> dict[str, str]:
    """Return the comment after each field in the source, its own or inherited, where there is one."""
    described: dict[str, str] = {}
    for cls in filter(is_dataclass, reversed(schema.__mro__)):
        described |= _own(cls)
    return {key: comment for key, comment in described.items() if comment}


@cache  # reading source is slow
def _own(cls: type[Any]) -> dict[str, str]:
    """Return the comment after each field that the class itself has, or an empty text."""
    source = inspect.getsource(cls).split("\n")
    body = ast.parse(inspect.cleandoc("\n".join(source))).body[0]
    assert isinstance(body, ast.ClassDef)
    comments = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, _, comment = source[(node.end_lineno or node.lineno) - 1].partition("#")
            comments[node.target.id] = comment.strip()
    return comments
