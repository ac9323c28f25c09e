"""Discovery: the classes of a kind in a package of imperfed, and the plug-ins that other distributions add to them.

A plug-in is an entry point of a group such as `imperfed.algorithms`: `name = "package.module:Class"`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from typing import Any, TypeVar, cast

from imperfed.core.errors import UsageError, unknown
from imperfed.core.loading import load_class, load_object

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Plugin:
    """An entry point of another distribution."""

    name: str
    path: str
    """Where it is, as `package.module:Class`."""
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.path} of {self.distribution} {self.version})"


class Registry(dict[str, Entry]):
    """Entries by name, built in and from plug-ins; an import path, `package.module:Class`, is looked up as well.

    Asking for a plug-in that cannot be used raises an error that says why.
    """

    def __init__(self, entries: Mapping[str, Entry], kinds: tuple[type[Any], ...] = ()) -> None:
        """Begin with these entries; `kinds`: the classes that an import path may lead to."""
        super().__init__(entries)
        self.kinds = kinds
        self.refused: dict[str, str] = {}
        """Why plug-ins cannot be used, by name."""

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        if name in self.refused:
            raise UsageError(self.refused[str(name)])
        return False

    def __missing__(self, name: str) -> Any:
        if ":" not in name:
            raise KeyError(name)
        return load_class("class", name, self.kinds)

    def only(self, kind: type[Any]) -> Registry[Any]:
        """Return the entries that are of this kind, and all the plug-ins that cannot be used."""
        part = Registry[Any]({n: e for n, e in self.items() if isinstance(e, type) and issubclass(e, kind)}, (kind,))
        part.refused = self.refused
        return part


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


def components(package: str, path: Iterable[str], **groups: type[Any]) -> Registry[Any]:
    """Return the classes of a package and of plug-ins by name; `groups`: the class that each group is about."""
    registry = Registry(discover(package, path, tuple(groups.values())), tuple(groups.values()))
    for group, kind in groups.items():
        add_plugins(registry, group, partial(_component, kind=kind))
    return registry


def _component(plugin: Plugin, kind: type[Any]) -> type[Any]:
    """Return the class of a plug-in; refuse one that the catalogue could not list."""
    component = load_class("plug-in", plugin.path, (kind,))
    name = getattr(component, "name", None)
    if name != plugin.name:
        raise UsageError(f"its class is named {name!r}; the entry point and `name` of the class must agree")
    return component


def add_plugins(registry: Registry[Entry], group: str, load: Callable[[Plugin], Entry]) -> None:
    """Add the plug-ins of a group after the built-in entries, which come first where the first that fits is taken.

    One that cannot be loaded, or takes the name of another entry, is left out, and the reason noted.
    """
    plugins = plugins_of(group)
    for plugin in plugins:
        namesakes = [other for other in plugins if other.name == plugin.name]
        if dict.__contains__(registry, plugin.name):
            registry.refused[plugin.name] = f"plug-in {plugin} is not used: imperfed itself has a {plugin.name!r}"
        elif len(namesakes) > 1:
            registry.refused[plugin.name] = f"plug-ins {' and '.join(map(str, namesakes))} have the same name: keep one"
        else:
            try:
                dict.__setitem__(registry, plugin.name, load(plugin))
            except Exception as error:  # whatever a stranger's module raises must not stop anything else
                registry.refused[plugin.name] = f"plug-in {plugin} cannot be used: {error}"


def load_instance(plugin: Plugin, kind: type[Entry]) -> Entry:
    """Return the object that a plug-in leads to, which must be of this type."""
    value = load_object("plug-in", plugin.path)
    if not isinstance(value, kind):
        raise UsageError(f"it is of type {type(value).__name__}; it must be a {kind.__name__}")
    return value


@cache
def entry_points() -> Any:
    """Return the entry points of all installed distributions (their type depends on Python's version).

    Reading them takes long.
    """
    return metadata.entry_points()


def plugins_of(group: str) -> tuple[Plugin, ...]:
    """Return the entry points of `imperfed.<group>`, by name."""
    points = entry_points().select(group=f"imperfed.{group}")
    plugins = [Plugin(point.name, point.value, point.dist.name, point.dist.version) for point in points if point.dist]
    return tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution)))


def find(kind: str, name: str, known: Registry[Entry]) -> Entry:
    """Return the entry of this name or import path, or raise an error that gives the nearest name of this `kind`."""
    if ":" in name:
        return cast(Entry, load_class(kind, name, known.kinds))
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
