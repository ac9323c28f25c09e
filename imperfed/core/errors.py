"""Errors that a user can act on, each with the exit code of the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence


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


class SiteFailedError(ImperfedError):
    """A run has ended with results, but a site failed in each of its rounds."""

    exit_code = 6


class RefusedBySiteError(ImperfedError):
    """A site's policy, or its user, rules out the run; the message names site, setting and reason."""

    exit_code = 6


class DiskFullError(ImperfedError, OSError):
    """A file could not be written because the disk is full; the message names it, and how to continue."""


SHORT = 8
"""The most names that a message lists in full."""
LISTED_BY = {
    "algorithm": "imperfed list",
    "objective": "imperfed list",
    "name": "imperfed list WHAT",
    "list": "imperfed list --help",
    "dataset": "imperfed list datasets",
    "example": "imperfed example",
    "model": "imperfed list models (your own: package.module:function)",
    "partition": "imperfed list partitions",
    "kind of candidate sets": "imperfed list candidates",
    "noise": "imperfed list noise",
    "annotation pattern": "imperfed list annotations",
    "repair": "imperfed list repairs",
    "attack": "imperfed list attacks",
    "defence": "imperfed list defences",
    "privacy": "imperfed list privacy",
    "study": "imperfed list studies",
    "section": "imperfed schema",
}
"""The command that lists all names of a kind, by what messages call the kind."""
ELSEWHERE = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "wd": "weight_decay",
    "num_rounds": "rounds",
    "clients": "sites",
    "num_clients": "sites",
    "local_epochs": "epochs",
    "local_steps": "steps",
    "random_state": "seed",
}
"""What other libraries call some settings, and their names here."""


def unknown(what: str, name: str, known: Iterable[str], command: str = "") -> UsageError:
    """Return an error that gives the unknown name, and all known ones if they are few.

    Of many names it gives the three nearest and the `command` that lists all, by default that of `LISTED_BY`.
    """
    names, command = sorted(known), command or LISTED_BY.get(what, "")
    few = len(names) <= SHORT
    near = [repr(one) for one in _near(name, names, 1 if few else 3)]
    message = f"unknown {what} {name!r}."
    if near:
        message += f" Did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}?"
    if few:
        message += f" Known: {', '.join(names)}"
    elif command:
        message += f" List all with: {command}"
    elif not near:
        message += f" Known: {', '.join(names[:SHORT])} and {len(names) - SHORT} more"
    return UsageError(message)


def _near(name: str, names: Sequence[str], most: int) -> Sequence[str]:
    """Return the names spelt most alike, and then those of which the name is one word (`rate`: `noise_rate`)."""
    elsewhere = ELSEWHERE.get(name.rpartition(".")[2], "")
    same = [one for one in names if elsewhere and one.rpartition(".")[2] == elsewhere]
    alike = difflib.get_close_matches(name, names, n=most)
    longer = [one for one in names if name in re.split("[-_.]", one)]
    return (*dict.fromkeys((*same, *alike, *longer)),)[:most]


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


def where_memory_ran_out(error: BaseException) -> str | None:
    """Return which memory an error of torch or Python says was too small; None if it says something else."""
    text = str(error)
    if "CUDA" in text and "out of memory" in text:
        return "the GPU"
    return "this machine" if isinstance(error, MemoryError) or "can't allocate memory" in text else None
