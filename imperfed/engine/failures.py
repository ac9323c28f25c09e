"""Why a site gave no usable answer. Failures are values: they cross pipes and networks and end in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

MOST_NAMES = 5
"""How many sites a sentence names that failed for the same reason; of more it gives the number."""


@dataclass(frozen=True)
class Failure:
    """A site that failed in an exchange, and why."""

    reason: str
    kind: ClassVar[str] = "failed"
    """A short name for the failure in messages."""


@dataclass(frozen=True)
class Crashed(Failure):
    """The site's work raised an error, or its process ended."""

    kind: ClassVar[str] = "crashed"


@dataclass(frozen=True)
class Unreadable(Failure):
    """A file could not be read, which asking again does not repair; in one process it ends the run."""

    kind: ClassVar[str] = "unreadable"


@dataclass(frozen=True)
class NotFinite(Failure):
    """The answer holds NaN or infinity; if all sites fail in this way, the run has diverged."""

    kind: ClassVar[str] = "not finite"


@dataclass(frozen=True)
class Misshapen(Failure):
    """The answer lacks a part, or a part has the wrong shape or type."""

    kind: ClassVar[str] = "misshapen"


@dataclass(frozen=True)
class Away(Failure):
    """The site is not connected."""

    kind: ClassVar[str] = "away"


@dataclass(frozen=True)
class Silent(Failure):
    """The site did not answer in time."""

    kind: ClassVar[str] = "silent"


@dataclass(frozen=True)
class Declined(Failure):
    """The site's own policy, or its user, rules out what was asked."""

    kind: ClassVar[str] = "declined"


@dataclass(frozen=True)
class Undecided(Failure):
    """The site's user has not accepted the run yet."""

    kind: ClassVar[str] = "undecided"


KINDS: dict[str, type[Failure]] = {
    c.kind: c for c in (Failure, Crashed, Unreadable, NotFinite, Misshapen, Away, Silent, Declined, Undecided)
}


def named_failures(failures: Mapping[int, Failure], names: Sequence[str]) -> str:
    """Return a sentence that names the sites that failed and why; a reason that several share is said once."""
    sites: dict[str, list[str]] = {}
    for k, failure in sorted(failures.items()):
        sites.setdefault(failure.reason, []).append(names[k])
    return "; ".join(f"{_listed(who)}: {reason}" for reason, who in sites.items())


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
