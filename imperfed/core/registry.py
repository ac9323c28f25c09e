"""Discovery of the classes of a kind in a package: those defined in its files that set their own name."""

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
    classes: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(path):
        module = importlib.import_module(f"{package}.{info.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and f"{value.__module__}.".startswith(f"{module.__name__}.")
            if own and key in vars(value) and issubclass(value, kinds):
                classes[getattr(value, key)] = value
    return dict(sorted(classes.items()))


def find(kind: str, name: str, known: Mapping[str, Entry]) -> Entry:
    """Return the entry of this name, or raise an error that calls it an unknown `kind` and gives the nearest name."""
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
