"""The built-in datasets. Every file in this folder has its own `CATALOGUE`: adding one needs no other edit.

A plug-in adds a `Source` of its own.

Nothing is ever downloaded. A missing file is an error that says where to get it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.registry import Registry, add_plugins, load_instance
from imperfed.data import readers, sparse
from imperfed.data.dataset import Dataset
from imperfed.data.source import Source
from imperfed.data.stored_files import data_folder

OWN_FILES = {".npz": readers.read_npz, ".mat": sparse.read_own_mat, ".txt": sparse.read_xc}


@cache
def sources() -> Registry[Source]:
    """Return all built-in datasets and those of plug-ins, by name."""
    registry = Registry({source.name: source for family in _families() for source in family})
    add_plugins(registry, "datasets", lambda plugin: load_instance(plugin, Source))
    return registry


def load(name_or_path: str) -> Dataset:
    """Return a built-in dataset by its name, or the user's own by the path of its .npz, .mat or .txt file."""
    known = sources()
    if name_or_path in known:
        source, folder = known[name_or_path], data_folder()
        missing = source.missing(folder)
        if missing:
            failure = "found none of" if source.any_of else "did not find"
            raise DataError(
                f"{source.name}: {failure} {', '.join(missing)} in {folder}. Origin: {source.origin} "
                "Put the missing files there, or set IMPERFED_DATA to another data folder."
            )
        return source.read(folder).check()
    path = Path(name_or_path).expanduser()
    if path.suffix.lower() in OWN_FILES:
        return OWN_FILES[path.suffix.lower()](path)
    if path.exists():
        raise UsageError(
            f"{path}: your own dataset must be one file ending in {' or '.join(OWN_FILES)}, or a folder with a "
            f"federation.toml, which `imperfed inspect {path}` writes"
        )
    if len(path.parts) > 1:
        raise DataError(f"{path}: no such file or folder")
    here = (declared.parent.name for declared in Path().glob("*/federation.toml"))
    raise UsageError(f"{path}: no such file or folder here, and {unknown('dataset', name_or_path, (*known, *here))}")


def _families() -> list[tuple[Source, ...]]:
    return [importlib.import_module(f"{__name__}.{info.name}").CATALOGUE for info in pkgutil.iter_modules(__path__)]
