"""Arrays of a file as tensors; what cannot be one is named with its shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]


def pixels(array: Array, where: str) -> Tensor:
    """Return uint8 images [n, h, w] or [n, h, w, channels] as float32 [n, channels, h, w] from 0 to 1."""
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise DataError(f"{where}: expected uint8 images, [n, height, width(, channels)]; found {in_words(array)}")
    return scaled(array[:, None] if array.ndim == 3 else np.moveaxis(array, -1, 1))


def scaled(array: Array) -> Tensor:
    """Return uint8 values 0 .. 255 as float32 0 .. 1, in a tensor that owns its memory."""
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C")).div_(255)


def features(array: Array, where: str) -> Tensor:
    """Return real numbers, one row per example, as float32; too large ones become infinite and are caught later."""
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        raise DataError(f"{where}: expected numbers with one row per example, [n, ...]; found {in_words(array)}")
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def integers(array: Array, where: str) -> Tensor:
    """Return a vector of integers as int64."""
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DataError(f"{where}: expected a vector of integers, [n]; found {in_words(array)}")
    return torch.from_numpy(array.astype(np.int64))


def membership(array: Array, where: str) -> Tensor:
    """Return a matrix of 0 and 1 as bool."""
    if array.dtype.kind not in "biuf" or array.ndim != 2:
        raise DataError(f"{where}: expected a matrix of 0 and 1; found {in_words(array)}")
    odd = np.argwhere((array != 0) & (array != 1))
    if len(odd):
        row, column = (int(i) for i in odd[0])
        raise DataError(f"{where}, row {row}, column {column}: {array[row, column]} is neither 0 nor 1")
    return torch.from_numpy(array.astype(bool))


def names(array: Array, where: str) -> tuple[str, ...]:
    """Return a vector of strings as a tuple."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise DataError(f"{where}: expected a vector of strings; found {in_words(array)}")
    return tuple(map(str, array))


def in_words(array: Array) -> str:
    """Return what an array is, for messages."""
    return f"{array.dtype} of shape {array.shape}"


def numbered(classes: int) -> tuple[str, ...]:
    """Return names for classes that have none: "0", "1", ..."""
    return tuple(map(str, range(classes)))


def inputs(array: Array, where: str) -> Tensor:
    """Return features as they are; uint8 with two or three axes per example become images with channels first."""
    if array.ndim == 4 and array.shape[1] == array.shape[2] > 3 and array.shape[3] in (1, 3):
        raise DataError(f"{where}: {in_words(array)} seems to have channels last; images are [n, channels, h, w]")
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        return features(array, where)
    return scaled(array[:, None] if array.ndim == 3 else array)
