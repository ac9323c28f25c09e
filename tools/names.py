"""Check that one name means one thing: `python tools/names.py`. One line per name defined twice; exit code 1 if any.

No two classes of the package share a name, and no two modules do, but for `__init__` and `base`.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "imperfed"
MAY_REPEAT = {"__init__", "base"}


def definitions(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield what is defined, its name, and the file, for every module and every class."""
    for path in sorted(root.rglob("*.py")):
        file = str(path.relative_to(root.parent))
        if path.stem not in MAY_REPEAT:
            yield "module", path.stem, file
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield "class", node.name, file


def repeated(root: Path) -> Iterator[str]:
    """Yield one line for every name that is defined in more than one place."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for what, name, file in definitions(root):
        places[what, name].append(file)
    for (what, name), files in places.items():
        if len(files) > 1:
            yield f"{what} {name} is defined in {' and in '.join(files)}"


def main() -> int:
    """Check the package beside this folder."""
    lines = list(repeated(Path(__file__).resolve().parent.parent / PACKAGE))
    print("\n".join(lines) if lines else "names: each means one thing")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
