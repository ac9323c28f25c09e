"""What a site may be called: files are named after it."""

from __future__ import annotations

from imperfed.data.files.problems import shown

RESERVED = ("global", "scale", "pooled")
"""Names of other files in a run's folder, and of all sites together."""


def name_trouble(name: str) -> str:
    """Return what rules this out as a site name, after which files are named; empty if nothing does."""
    if not name.strip() or not name.isprintable():
        return "a name that is blank or has unprintable characters"
    if name in RESERVED:
        return f"{shown(name)}, which is the name of another file of a run"
    if name.startswith(".") or any(mark in name for mark in '/\\:*?"<>|'):
        return f"{shown(name)}, which cannot be the name of a file"
    return f"a name of {len(name)} characters" if len(name.encode()) > 200 else ""
