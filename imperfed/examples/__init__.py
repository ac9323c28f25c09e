"""Federations to try, made on the spot from data inside scikit-learn: every `Example` in a file of this folder.

Adding one needs no other edit. Plug-ins may add their own. Nothing is downloaded, and no data lie in the repository.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

from imperfed.core.errors import UsageError
from imperfed.core.registry import Registry, components, find
from imperfed.examples.base import Example


@cache
def examples() -> Registry[type[Example]]:
    """Return all examples by name."""
    return components(__name__, __path__, examples=Example)


def example(name: str, folder: str | Path = "") -> Path:
    """Write an example into a new or empty folder, by default one of its name here; return the folder."""
    found = find("example", name, examples())
    path = Path(folder or found.name).expanduser()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not empty; choose a new folder: imperfed example {name} DIR")
    found().write(path, shlex.quote(str(path)))
    return path
