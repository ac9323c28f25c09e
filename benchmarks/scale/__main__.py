"""python -m benchmarks.scale PART [--help]: one part of the benchmark, each a file with a `main` of its own."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec

PARTS = {
    "ranks": "one process against several ranks on the same work: time and bytes of a round",
    "sites": "many sites on the same rows: time and memory",
    "lazy": "rows that are read when they are needed: time and memory",
    "tables": "large tables: memory of `inspect` and of a run",
    "fill": "write the figures of all parts into the pages",
}


def main(argv: list[str]) -> int:
    """Carry out the part that is named."""
    parts = {name: about for name, about in PARTS.items() if find_spec(f"benchmarks.scale.{name}") is not None}
    if not argv or argv[0] not in parts:
        print("\n".join([(__doc__ or "").strip(), "", *(f"  {name:6} {about}" for name, about in parts.items())]))
        return 0 if argv[:1] in ([], ["--help"], ["-h"]) else 2
    return int(importlib.import_module(f"benchmarks.scale.{argv[0]}").main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
