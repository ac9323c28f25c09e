"""Text from another machine, made fit for a terminal, a log and a report."""

from __future__ import annotations

LONGEST = 400
"""The most characters of a foreign text that are shown."""


def printable(text: str, longest: int = LONGEST) -> str:
    r"""Return a text on one line: control characters and other invisible ones as escapes (`\x1b`), the rest cut off."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:longest])
    if len(text) <= longest and len(shown) <= longest:
        return shown
    return f"{shown[:longest]}... ({len(text)} characters)"
