"""Check who imports whom inside the package: `python tools/imports.py`. One line a violation; exit code 1 if any.

algorithms/*, repairs/*, attacks/*, defences/*    import core, auxiliary, labels, losses, twice, network, errors,
                                                  descend, embeddings, digests and what lies in their own
                                                  folder, nothing else
engine/*                                          never import those four, data, evaluate or oracle
files/*                                           never import those four, engine, evaluate, experiment or oracle
core, labels, network, losses, descend, ...       never import what is built on them
oracle                                            is imported by data/* and evaluate only
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "imperfed"
GROUND = {"core", "federation", "labels", "network", "losses", "twice", "descend", "auxiliary", "embeddings", "digests"}
AROUND = {"repairs", "attacks", "defences"}
BUILT_ON_IT = {"algorithms", "cli", "data", "engine", "evaluate", "report", *AROUND}
ALLOWED = {room: GROUND | {"errors", "discovery", room} for room in ("algorithms", *AROUND)}
FORBIDDEN = {"engine": {"algorithms", "data", "evaluate", *AROUND}} | dict.fromkeys(GROUND, BUILT_ON_IT)
FORBIDDEN["files"] = {"algorithms", "engine", "evaluate", "experiment", *AROUND}
SEES_THE_TRUTH = {"data", "evaluate", "oracle"}


def imports(tree: ast.AST, module: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The line and the dotted parts of everything imported, at the top of the file or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module[: -node.level] if node.level else []
            parts += node.module.split(".") if node.module else []
            yield from ((node.lineno, [*parts, alias.name]) for alias in node.names)


def complaint(room: str, target: str) -> str | None:
    """Why something in this room may not import that one, if it may not."""
    if target == "oracle" and room not in SEES_THE_TRUTH:
        return "only data and evaluate see the oracle"
    if room in ALLOWED and target not in ALLOWED[room]:
        return f"{room} imports {', '.join(sorted(ALLOWED[room]))} only"
    if target in FORBIDDEN.get(room, ()):
        return f"{room} never imports {', '.join(sorted(FORBIDDEN[room]))}"
    return None


def violations(package: Path) -> Iterator[str]:
    """One line for every import that goes the wrong way."""
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package.parent)
        module = [*inside.parts[:-1], inside.stem]
        for line, parts in imports(ast.parse(path.read_text()), module):
            if parts[0] == PACKAGE and len(parts) > 1 and (why := complaint(module[1], parts[1])):
                yield f"{inside}:{line}: imports {'.'.join(parts)}: {why}"


def main() -> int:
    """Check the package beside this folder."""
    found = list(violations(Path(__file__).resolve().parent.parent / PACKAGE))
    print("\n".join(found) if found else "imports: in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
