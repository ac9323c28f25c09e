"""Which classes and functions messages between ranks may name, and the errors where they name others."""

from __future__ import annotations

import importlib
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.core.foreign_text import printable
from imperfed.core.loading import current_folder_importable

FUNCTIONS = {"torch", "torch.nn.functional"}
"""The modules whose functions a network may hold, such as an activation; of torch itself those that are not Python."""


class UnreadableMessageError(ImperfedError):
    """A message of another rank is not one that this program writes."""


def may_cross(kind: type[Any]) -> bool:
    """Return whether objects of a class may be sent and received."""
    return issubclass(kind, nn.Module) or any(base.__module__.startswith("imperfed.") for base in kind.__mro__)


def class_at(path: str) -> type[Any]:
    """Return the class of an import path; refuse one that is no part of a run."""
    module, _, name = path.partition(":")
    with current_folder_importable():
        found = vars(importlib.import_module(module)).get(name)
    if not isinstance(found, type) or not may_cross(found):
        raise strange(path)
    return found


def function_path(function: Any) -> str:
    """Return where a function of torch is found."""
    for module in ("torch.nn.functional", "torch"):
        path = f"{module}:{function.__name__}"
        if _is_function(path) and _attribute(path) is function:
            return path
    raise cannot_cross(f"the function {printable(function.__qualname__)} is held by an object; make it a method")


def function_at(path: str) -> Any:
    """Return the function of torch at an import path."""
    if not _is_function(path):
        raise strange(path)
    return _attribute(path)


def _is_function(path: str) -> bool:
    module = path.partition(":")[0]
    allowed = BuiltinFunctionType if module == "torch" else (FunctionType, BuiltinFunctionType)
    return module in FUNCTIONS and isinstance(_attribute(path), allowed)


def _attribute(path: str) -> Any:
    module, _, name = path.partition(":")
    return vars(importlib.import_module(module)).get(name)


def dtype_called(name: str) -> torch.dtype:
    """Return the type of numbers of this name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise strange(name)
    return dtype


def cannot_cross(what: str) -> UsageError:
    """Return the error of a part of a run that has no place in a message."""
    return UsageError(
        f"a part of this run cannot be sent to another rank ({what}); define its class in a module that can be "
        "imported, derived from one of imperfed or torch.nn.Module, or use one process"
    )


def strange(name: str) -> UnreadableMessageError:
    """Return the error of a message that names what no run has."""
    return UnreadableMessageError(f"a message of another rank names {printable(name)!r}, which is no part of a run")
