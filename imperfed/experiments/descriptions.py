"""The meaning of settings: the comments after the fields of dataclasses, the only place where they are described."""

from __future__ import annotations

import ast
import inspect
from dataclasses import is_dataclass
from typing import Any


def descriptions(schema: type[Any]) -> dict[str, str]:
    """Return the comment after each field in the source, its own or inherited, where there is one."""
    described = {}
    for cls in filter(is_dataclass, reversed(schema.__mro__)):
        source = inspect.getsource(cls).split("\n")
        body = ast.parse(inspect.cleandoc("\n".join(source))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                _, _, comment = source[(node.end_lineno or node.lineno) - 1].partition("#")
                described[node.target.id] = comment.strip()
    return {key: comment for key, comment in described.items() if comment}
