"""Conversion of a setting's value, from the command line or TOML, to the type that its field declares."""

from __future__ import annotations

import math
import re
import types
import typing
from contextlib import suppress
from typing import Any, Literal

import msgspec
import numpy as np

from imperfed.core.errors import UsageError, unknown

WANTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple[int, ...]: "whole numbers, such as 1,2,3",
    tuple: "comma-separated values",
}


def typed(value: Any, kind: Any, name: str) -> Any:
    """Return the value converted to the field's type; raise an error that says what the setting takes."""
    try:
        converted = msgspec.convert(_parsed(value, kind), kind, strict=False)
    except msgspec.ValidationError:
        pass
    else:
        numbers = converted if isinstance(converted, tuple) else (converted,)
        if all(math.isfinite(number) for number in numbers if isinstance(number, float)):
            return converted
    if typing.get_origin(kind) is Literal:
        raise unknown(f"value of {name}", str(value), map(str, typing.get_args(kind)))
    raise UsageError(f"setting {name} takes {wanted(kind)}; got {value!r}")


def wanted(kind: Any) -> str:
    """Return what a field of this type takes, in words."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(wanted(part) for part in typing.get_args(kind) if part is not types.NoneType)
    return WANTED.get(kind) or WANTED.get(origin) or f"a value of type {kind}"


def _parsed(value: Any, kind: Any) -> Any:
    """Return a value parsed where msgspec needs help: lists, NumPy's numbers, and words such as .5, +3 and 1_000."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, str) and typing.get_origin(kind) is tuple:
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, str) and kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value


def gpus_of(device: str) -> tuple[int, ...]:
    """Return the GPUs that a device such as cuda:0,1 names; none for auto, cpu and cuda, which name no number."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+(,\d+)*)?", device):
        raise unknown("value of run.device", device, ("auto", "cpu", "cuda", "cuda:0,1"))
    named = device.partition(":")[2]
    gpus = tuple(int(gpu) for gpu in named.split(",")) if named else ()
    if len(set(gpus)) < len(gpus):
        raise UsageError(f"run.device = {device} names a GPU twice")
    return gpus
