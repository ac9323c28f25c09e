"""The catalogue's names and lists in the user's cache folder, for commands that cannot wait for torch.

The lists are read from the classes themselves, whose modules import torch. The cache holds them until a file of the
package, its version or an installed plug-in changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import imperfed
from imperfed.core.atomic import write_whole
from imperfed.core.cache import cache_folder

PACKAGE = Path(imperfed.__file__).parent
PLUG_INS = "imperfed."
"""How the names of entry-point groups for plug-ins begin."""


@dataclass(frozen=True)
class CachedCatalogue:
    """What can be chosen by name."""

    lists: dict[str, list[dict[str, Any]]]
    """The entries of every list of `imperfed list`."""
    settings: dict[str, list[str]]
    """The settings of a run of each method, as section.key."""
    unusable: dict[str, dict[str, str]]
    """Why plug-ins cannot be used, by the list that they would be in and by name."""
    pages: dict[str, dict[str, dict[str, Any]]]
    """The entries that `imperfed show` prints in full, by list and by name."""

    def names(self, what: str) -> list[str]:
        """Return the names of one list."""
        return [entry["name"] for entry in self.lists[what]]


def read_catalogue() -> CachedCatalogue:
    """Return the catalogue from the cache, or from its classes where the cache is missing or out of date."""
    place = cache_folder("catalogue") / f"{hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:12]}.json"
    plug_ins = _plug_ins()
    with suppress(OSError, ValueError, KeyError, TypeError):  # whatever is wrong with the file, it is written again
        stored = json.loads(place.read_text(encoding="utf-8"))
        if stored["key"] == _key(plug_ins, stored["plug-in files"]):
            return CachedCatalogue(**stored["catalogue"])
    catalogue = _from_classes()
    with suppress(OSError):  # without a cache, only time is lost
        files = _files_of(plug_ins)
        text = json.dumps({"key": _key(plug_ins, files), "plug-in files": files, "catalogue": asdict(catalogue)})
        write_whole(place, lambda path: path.write_text(text, encoding="utf-8"), writer=str(os.getpid()))
    return catalogue


def _from_classes() -> CachedCatalogue:
    from imperfed.cli.catalogue import LISTS, pages, setting_names, unusable_plugins

    lists = {what: entries() for what, entries in LISTS.items()}
    return CachedCatalogue(lists, setting_names(), unusable_plugins(), pages())


def _key(plug_ins: metadata.EntryPoints, files: Iterable[str]) -> str:
    """Return a digest of all that the catalogue depends on."""
    walk = ((folder, name) for folder, _, names in os.walk(PACKAGE) for name in names)
    own = [os.path.join(folder, name) for folder, name in walk if name.endswith((".py", ".toml"))]
    times = sorted((path, os.stat(path).st_mtime_ns) for path in [*own, *files])
    # The same plug-in may be installed at several places, in environments that share the cache.
    entries = sorted((p.group, p.name, p.value, str(p.dist.locate_file("")) if p.dist else "") for p in plug_ins)
    return hashlib.sha256(repr((imperfed.__version__, times, entries)).encode()).hexdigest()


def _plug_ins() -> metadata.EntryPoints:
    """Return the entry points of installed plug-ins."""
    installed = metadata.entry_points()
    return metadata.EntryPoints(
        plug_in for group in installed.groups if group.startswith(PLUG_INS) for plug_in in installed.select(group=group)
    )


def _files_of(plug_ins: metadata.EntryPoints) -> list[str]:
    """Return the files of the plug-ins' modules, which have just been imported."""
    modules = (sys.modules.get(plug_in.module) for plug_in in plug_ins)
    return sorted({module.__file__ for module in modules if module is not None and module.__file__ is not None})
