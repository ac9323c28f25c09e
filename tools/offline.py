"""Check that no page of the site asks another machine for anything: `python tools/offline.py SITE`.

Links that a reader may follow are fine; scripts, styles, fonts, pictures and frames must lie beside the pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|embed|object|video|audio|input)\b[^>]*?\s(?:src|srcset|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|alternate|next|prev))[^>]*?\shref=["']?((?:https?:)?//[^"'\s>]+)"""
)
STYLED = re.compile(r"""(?:@import\s+|url\()\s*(?:url\()?["']?((?:https?:)?//[^"')\s]+)""")


def elsewhere(site: Path) -> Iterator[str]:
    """Yield one line for everything that a page or a style sheet would load from another machine."""
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8")
        for pattern in (LOADED, STYLED):
            for found in pattern.finditer(text):
                yield f"{path}: {next(filter(None, found.groups()))}"


def main(site: Path) -> int:
    """Check a built site."""
    pages = sum(1 for _ in site.rglob("*.html"))
    lines = [*elsewhere(site)]
    print("\n".join(lines) if lines else f"offline: {pages} pages load nothing from elsewhere")
    return 1 if lines or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
