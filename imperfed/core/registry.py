"""Finding what a package holds: every class of a kind that is defined in one of its files and has a name of its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from imperfed.core.errors import unknown

Entry = TypeVar("Entry")


def discover(
    package: str, path: Iterable[str], kinds: tuple[type[Any], ...], key: str = "name"
) -> dict[str, type[Any]]:
    """Return the classes of these kinds by name: those of a package's files, and those its subpackages re-export.

    `key` is the attribute that holds the name of a class.
    """
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(path):
        module = importlib.import_module(f"{package}.{info.name}")
        for thing in vars(module).values():
            own = isinstance(thing, type) and f"{thing.__module__}.".startswith(f"{module.__name__}.")
            if own and key in vars(thing) and issubclass(thing, kinds):
                found[getattr(thing, key)] = thing
    return dict(sorted(found.items()))


def find(kind: str, name: str, known: Mapping[str, Entry]) -> Entry:
    """Return the entry of this name, or raise an error that calls it a `kind` and offers the nearest name."""
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
