"""Finding what a package holds: every class of a kind that is defined in one of its files and has a name of its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any


def discover(package: str, path: Iterable[str], kinds: tuple[type[Any], ...]) -> dict[str, type[Any]]:
    """The classes of these kinds in the files of a package, by name. Adding one needs no other edit."""
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(path):
        module = importlib.import_module(f"{package}.{info.name}")
        for thing in vars(module).values():
            own = isinstance(thing, type) and thing.__module__ == module.__name__ and "name" in vars(thing)
            if own and issubclass(thing, kinds):
                found[thing.name] = thing
    return dict(sorted(found.items()))
