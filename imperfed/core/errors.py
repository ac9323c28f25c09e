"""Errors that a user can act on, each with the exit code of the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ImperfedError(Exception):
    """Base of all errors that come from input or circumstances, not from a bug."""

    exit_code = 1


class UsageError(ImperfedError):
    """An unknown name, key or value that the caller gave."""

    exit_code = 2


class DataError(ImperfedError):
    """Data that cannot be learned from as they are; the message names file, row and column where it can."""

    exit_code = 3


class QuorumError(ImperfedError):
    """Too many sites failed in one round."""

    exit_code = 4


class DivergedError(QuorumError):
    """The weights are no longer finite: those of too many sites, or the merged ones."""

    exit_code = 5


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return an error that gives the unknown name, the nearest known one and all known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}")


def positive(section: str, **settings: float) -> None:
    """Refuse settings that are not above 0."""
    for key, value in settings.items():
        if not value > 0:
            raise UsageError(f"setting {section}.{key} must be above 0; got {value:g}")


def fraction(section: str, **settings: float) -> None:
    """Refuse settings below 0, or 1 and above, such as a momentum of 1."""
    for key, value in settings.items():
        if not 0 <= value < 1:
            raise UsageError(f"setting {section}.{key} must be 0 or more and below 1; got {value:g}")


def not_negative(section: str, **settings: float) -> None:
    """Refuse settings below 0."""
    for key, value in settings.items():
        if not value >= 0:
            raise UsageError(f"setting {section}.{key} must be 0 or more; got {value:g}")
