"""Check which package imports which: `python tools/imports.py`. One line per violation; exit code 1 if there are any.

Every package lists the packages it may import, besides itself. The order below is the order of the layers, from the
lowest up. No module imports itself by way of others, unless inside a function. The truth (`imperfed.data.oracle`) is
for `data`, which creates it, `evaluation`, which reads it, and `testing`, which checks that nobody else does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "imperfed"
METHODS = {"algorithms", "attacks", "defences", "privacy", "repairs"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "nn": {"core"},
    "models": {"core", "nn"},
    **{name: {"core", "nn"} for name in METHODS},
    "engine": {"core", "nn", "models"},
    "alone": {"core", "algorithms", "engine", "models"},
    "data": {"core", "nn"},
    "evaluation": {"core", "data", "engine"},
    "examples": {"core", "data"},
    "results": {"core", "alone", "data", "engine", "evaluation", "experiments", "api"},
    "report": {"core", "data", "evaluation", "experiments", "results"},
    "experiments": {"core", "alone", "data", "engine", "evaluation", "models", "report", "results", *METHODS},
    "census": {"core", "cli", "data", "engine", "experiments", "models", "report", *METHODS},
    "flower": {
        "alone",
        "core",
        "data",
        "engine",
        "evaluation",
        "experiments",
        "label_audit",
        "repairs",
        "report",
        "results",
    },
    "label_audit": {
        "algorithms",
        "census",
        "cli",
        "core",
        "data",
        "engine",
        "evaluation",
        "experiments",
        "repairs",
        "report",
        "results",
    },
    "leakage": {"core", "data", "engine", "experiments", "nn", "report", "results"},
    "benchmark": {"core", "algorithms", "data", "defences", "engine", "experiments"},
    "live": {"core", "data", "report", "results"},
    "export": {"alone", "api", "core", "data", "evaluation", "report", "results"},
    "api": {
        "algorithms",
        "census",
        "cli",
        "core",
        "data",
        "engine",
        "experiments",
        "export",
        "label_audit",
        "leakage",
        "models",
        "results",
    },
    "testing": {"core", "algorithms", "data", "engine", "evaluation"},
}
ORACLE = ["data", "oracle"]
SEE_THE_TRUTH = {"data", "evaluation", "testing"}


def imports(nodes: Iterable[ast.AST], module: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the dotted parts of every import among these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module[: -node.level] if node.level else []
            parts += node.module.split(".") if node.module else []
            yield from ((node.lineno, [*parts, alias.name]) for alias in node.names)


def complaint(package: str, target: list[str]) -> str | None:
    """Say why a package may not import the target (its parts below `imperfed`), or return None if it may."""
    if target[:2] == ORACLE and package not in SEE_THE_TRUTH:
        return f"only {' and '.join(sorted(SEE_THE_TRUTH))} see the truth"
    allowed = MAY_IMPORT.get(package)
    if allowed is None or target[0] in (package, "__version__") or target[0] in allowed:
        return None
    return f"{package} may import {', '.join(sorted(allowed)) or 'no other package'}"


def violations(root: Path) -> Iterator[str]:
    """Yield one line for every import that goes the wrong way."""
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root.parent)
        module = [*inside.parts[:-1], inside.stem]
        for line, parts in imports(ast.walk(ast.parse(path.read_text())), module):
            if parts[0] == PACKAGE and len(parts) > 1 and (why := complaint(module[1], parts[1:])):
                yield f"{inside}:{line}: imports {'.'.join(parts)}: {why}"


def circle(root: Path) -> Iterator[str]:
    """Yield a line for modules that import each other when they are loaded, if there are any."""
    files = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in sorted(root.rglob("*.py"))}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    loads: dict[str, set[str]] = {}
    for name, path in files.items():
        module = [*name.split("."), *(["__init__"] if path.stem == "__init__" else [])]
        wanted = [parts for _, parts in imports(ast.parse(path.read_text()).body, module)]
        either = [(".".join(parts), ".".join(parts[:-1])) for parts in wanted]  # a module, or a name in it
        loads[name] = {whole if whole in files else part for whole, part in either if {whole, part} & files.keys()}
    try:
        TopologicalSorter(loads).prepare()
    except CycleError as error:
        yield f"{' imports '.join(reversed(error.args[1]))}: move what both need to a module of its own"


def main() -> int:
    """Check the package beside this folder."""
    root = Path(__file__).resolve().parent.parent / PACKAGE
    lines = [*violations(root), *circle(root)]
    print("\n".join(lines) if lines else "imports: in order")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
