"""What a site has refused, in its log: with all settings the first time, and as a number when it is asked again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from imperfed.core.errors import DataError
from imperfed.flower.site.runtime import REFUSALS, LocalSite
from imperfed.flower.site.sealed_words import read_sealed, write_sealed

MOST = 100
"""Different refusals that are logged with all that was asked; of further ones only the reasons are."""
LINES = 500
"""The most lines of one refusal; a declaration may have any number."""


class Refusals(msgspec.Struct, frozen=True):
    """How often each refusal was given, by a digest."""

    times: dict[str, int]

    @classmethod
    def read(cls, path: Path) -> Refusals:
        """Return what was refused so far; nothing but the log rests on it."""
        with suppress(DataError):
            return read_sealed(path, cls) or cls({})
        return cls({})


def log_refusal(place: LocalSite, reason: str, asked: str) -> None:
    """Log a refusal: what is refused, and what was asked; one that is repeated at the 2nd, 4th, 8th ... time only."""
    path = place.state / REFUSALS
    times = Refusals.read(path).times
    digest = hashlib.sha256(f"{reason}\n{asked}".encode()).hexdigest()[:32]
    count = times.get(digest, 0) + 1
    if digest in times or len(times) < MOST:
        write_sealed(path, Refusals(times | {digest: count}))
    refused = reason.removeprefix(f"{place.name} refuses ")
    if count == 1:
        lines = [f"refused: {refused}", *(asked.splitlines() if len(times) < MOST else ())]
        more = [f"... and {len(lines) - LINES} more lines"] if len(lines) > LINES else []
        place.log("\n".join([*lines[:LINES], *more]))
    elif count & (count - 1) == 0:
        place.log(f"refused {count} times by now: {refused}")
