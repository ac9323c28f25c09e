"""The user's own functions, named as `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from imperfed.core.errors import UsageError, unknown


def load_function(what: str, name: str) -> Callable[..., Any]:
    """Return the function of this name; `what` tells messages what it is for, such as "model"."""
    path, _, attribute = name.partition(":")
    advice = "run from the folder that holds it, or install it"
    with current_folder_importable(), blaming(f"{what} {name!r}: cannot import {path!r}; {advice}"):
        module = importlib.import_module(path)
    functions: dict[str, Callable[..., Any]] = {key: value for key, value in vars(module).items() if callable(value)}
    if attribute not in functions:
        public = [key for key in functions if not key.startswith("_")]
        raise unknown(f"function in module {path!r}", attribute, public)
    return functions[attribute]


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
