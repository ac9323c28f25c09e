"""The user's own functions and classes, named by their import paths: `package.module:function`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from imperfed.core.errors import UsageError, unknown


def load_function(what: str, name: str) -> Callable[..., Any]:
    """Return the function of this name; `what` says in messages what it is for, such as "model"."""
    module = _module(what, name)
    functions = [key for key, value in vars(module).items() if callable(value)]
    function: Callable[..., Any] = _attribute(module, name, "function", functions)
    return function


def load_class(what: str, name: str, kinds: tuple[type[Any], ...]) -> type[Any]:
    """Return the class of this name; refuse one that is of none of these kinds or has settings without a default."""
    module = _module(what, name)
    _keep_importable(module)
    classes = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, kinds)]
    loaded: type[Any] = _attribute(module, name, " or ".join(kind.__name__ for kind in kinds), classes)
    with blaming(f"{what} {name!r}: it must be made by {name.partition(':')[2]}(), without arguments"):
        loaded()
    if not isinstance(getattr(loaded, "name", None), str):
        raise UsageError(f"{what} {name!r}: it has no name; give the class a name: ClassVar[str]")
    return loaded


def load_object(what: str, name: str) -> Any:
    """Return whatever a module holds under this name."""
    module = _module(what, name)
    return _attribute(module, name, "name", list(vars(module)))


def import_path(value: Any) -> str:
    """Return the name under which a class or a function can be loaded again."""
    return f"{value.__module__}:{value.__qualname__}"


def is_importable(value: Any) -> bool:
    """Return whether another process finds a class or a function under its import path."""
    module = getattr(value, "__module__", None)
    found = getattr(sys.modules.get(module or ""), getattr(value, "__qualname__", ""), None)
    return module != "__main__" and found is value


def _module(what: str, name: str) -> ModuleType:
    """Return the module of an import path."""
    path = name.partition(":")[0]
    advice = "run from the folder that holds it, or install it"
    with current_folder_importable(), blaming(f"{what} {name!r}: cannot import {path!r}; {advice}"):
        return importlib.import_module(path)


def _attribute(module: ModuleType, name: str, kind: str, fitting: list[str]) -> Any:
    """Return what the module of an import path holds, which must be one of the fitting names."""
    path, _, attribute = name.partition(":")
    if attribute not in fitting:
        public = [key for key in fitting if not key.startswith("_")]
        if not public:
            raise UsageError(f"{name!r}: module {path!r} has no {kind}")
        raise unknown(f"{kind} in module {path!r}", attribute, public)
    return vars(module)[attribute]


def _keep_importable(module: ModuleType) -> None:
    """Leave the current folder on the search path, which other processes inherit, if the module comes from there."""
    folder = os.getcwd()
    file = getattr(module, "__file__", None) or ""  # the `__main__` of a notebook has none
    if file.startswith(os.path.join(folder, "")) and folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Search the current folder for modules, which `python -m` does but an installed command does not."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")


@contextmanager
def blaming(problem: str) -> Iterator[None]:
    """Turn whatever the user's code raises into an error that says where it happened."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"{problem} ({type(error).__name__}: {error})") from error
