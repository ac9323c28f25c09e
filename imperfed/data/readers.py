"""Readers of public file formats: IDX, MATLAB, NPZ and CIFAR-10.

Each is a pure function of the file and raises a `DataError` that names it. Files are not trusted: sizes are checked
against the header, and pickled data is never loaded.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.attributes import with_attribute
from imperfed.data.dataset import Dataset, label_matrix
from imperfed.data.from_arrays import (
    Array,
    features,
    in_words,
    inputs,
    integers,
    membership,
    names,
    numbered,
    pixels,
    scaled,
)
from imperfed.data.stored_files import contents, existing

T = TypeVar("T")
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_ROW = 1 + 3 * 32 * 32
NPZ_ARRAYS = (
    *("x", "y", "candidates", "x_test", "y_test", "classes", "site", "group", "given", "trusted"),
    *("attribute", "attribute_test", "attribute_values"),
)


@contextmanager
def decoding(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a decoder raises on damaged bytes into one `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # the decoders of NumPy and SciPy share no exception type
        raise DataError(f"{path}: cannot be read as {what} ({type(error).__name__}: {error})") from error


def read_idx(path: Path) -> Array:
    """Return the array in an IDX file, plain or gzipped."""
    data = contents(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_TYPES or not 1 <= data[3] <= 4:
        raise DataError(f"{path}: not an IDX file; it starts with the bytes {data[:4].hex(' ')}")
    dtype, start = np.dtype(IDX_TYPES[data[2]]), 4 + 4 * data[3]
    if len(data) < start:
        raise DataError(f"{path}: truncated in its header, at byte {len(data)} of {start}")
    shape = tuple(np.frombuffer(data, ">u4", data[3], 4).tolist())
    stop = start + math.prod(shape) * dtype.itemsize
    if len(data) != stop:
        raise DataError(
            f"{path}: {len(data)} bytes, but the header ({dtype.name} of shape {shape}) promises {stop}; "
            "the file is truncated or corrupt"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_idx_images(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Return images [n, 1, h, w] and their classes from a pair of IDX files."""
    x = pixels(read_idx(images), str(images))
    y = integers(read_idx(labels), str(labels))
    if len(x) != len(y):
        raise DataError(f"{images}: {len(x)} images but {len(y)} labels in {labels}")
    return x, y


def read_mat(path: Path) -> Dataset:
    """Read a classic candidate-label file.

    `data` is instances x features; `partial_target` and `target` are classes x instances.
    """
    import scipy.io

    wanted = "data", "partial_target", "target"
    with decoding(path, "a MATLAB file of version 7 or older"):
        file = scipy.io.loadmat(existing(path), appendmat=False, variable_names=wanted)
        variables = {name: _dense(file[name]) for name in wanted if name in file}
    for name in wanted:
        if name not in variables:
            raise DataError(f"{path}: no variable {name!r}; a candidate-label file holds {', '.join(wanted)}")
    data, candidates, truth = (variables[name] for name in wanted)
    x = features(data, f"{path}, data")
    for name, matrix in (("partial_target", candidates), ("target", truth)):
        if matrix.shape != (len(candidates), len(x)):
            hint = "; it seems to be the other way round: transpose it" if matrix.shape[0] == len(x) else ""
            raise DataError(f"{path}, {name}: {in_words(matrix)}, expected classes x {len(x)} instances{hint}")
    y, sets = _one_hot(truth, path), membership(candidates.T, f"{path}, partial_target")
    return Dataset(path.stem, x, y, sets, numbered(len(candidates))).check(str(path))


def _dense(matrix: Any) -> Array:
    if hasattr(matrix, "toarray"):
        matrix = matrix.tocsc()
        matrix.check_format(full_check=True)  # toarray trusts the indices and would write out of bounds
        matrix = matrix.toarray()
    return np.asarray(matrix)


def _one_hot(matrix: Array, path: Path) -> Tensor:
    truth = membership(matrix.T, f"{path}, target")
    wrong = (truth.sum(1) != 1).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"{path}, target, row {row}: {int(truth[row].sum())} true classes, expected exactly one")
    return truth.int().argmax(1)


def read_arrays(path: Path, *required: str) -> dict[str, Array]:
    """Return all arrays of an .npz archive that holds the required ones. Python objects are refused, not loaded."""
    if not zipfile.is_zipfile(existing(path)):
        raise DataError(f"{path}: not an .npz archive, or a truncated one; write it with numpy.savez")
    arrays: dict[str, Array] = {}
    with decoding(path, "an .npz archive"), np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            with decoding(path, f"an .npz archive of plain arrays; {name!r} is ragged, pickled or damaged"):
                arrays[name] = np.asarray(archive[name])
    for name in required:
        if name not in arrays:
            raise DataError(f"{path}: no array {name!r}; found {', '.join(sorted(arrays)) or 'nothing'}")
    return arrays


def read_npz(path: Path) -> Dataset:
    """Read the user's own dataset: `x`, at least one of `y`, `candidates` and `given`, and any other `NPZ_ARRAYS`."""
    arrays = read_arrays(path, "x")
    for name in sorted(arrays.keys() - NPZ_ARRAYS):  # a misspelt name must not be ignored silently
        raise DataError(f"{path}: unknown array {name!r}; known: {', '.join(NPZ_ARRAYS)}")

    def part(name: str, convert: Callable[[Array, str], T]) -> T | None:
        return convert(arrays[name], f"{path}, {name}") if name in arrays else None

    x = inputs(arrays["x"], f"{path}, x")
    truth = label_matrix if "y" in arrays and arrays["y"].shape[1:] > (1,) else integers  # one column is no matrix
    y, test_y, given = part("y", truth), part("y_test", truth), part("given", integers)
    candidates, classes = part("candidates", membership), part("classes", names)
    known = [t for t in (y, test_y, given) if t is not None]
    if classes is None:
        classes = numbered(candidates.shape[1] if candidates is not None else _count_classes(known, len(x), path))
    trusted = part("trusted", lambda array, where: membership(array.reshape(-1, 1), where).flatten())
    optional = part("x_test", inputs), test_y, part("site", integers), part("group", integers), given, trusted
    dataset = Dataset(path.stem, x, y, candidates, classes, *optional)
    attribute = part("attribute", membership), part("attribute_test", membership), part("attribute_values", names)
    return with_attribute(dataset, *attribute, str(path)).check(str(path))


def _count_classes(known: list[Tensor], n: int, path: Path) -> int:
    if known and known[0].ndim == 2:
        return known[0].shape[1]
    highest = max([0, *(int(v.max()) for v in known if len(v))])
    if highest >= max(n, 1):  # most likely not class numbers; also limits how many class names are generated
        raise DataError(
            f"{path}, y: class {highest} among {n} examples; number classes from 0, or name them in `classes`"
        )
    return highest + 1


def read_cifar_npz(path: Path) -> Dataset:
    """Read CIFAR-10 or a subset of it; `train_index` holds the official positions, which become the row names."""
    arrays = read_arrays(path, "x_train", "y_train", "train_index", "x_test", "y_test", "class_names")
    return Dataset(
        "cifar10",
        pixels(arrays["x_train"], f"{path}, x_train"),
        integers(arrays["y_train"], f"{path}, y_train"),
        None,
        names(arrays["class_names"], f"{path}, class_names"),
        pixels(arrays["x_test"], f"{path}, x_test"),
        integers(arrays["y_test"], f"{path}, y_test"),
        ids=tuple(map(str, integers(arrays["train_index"], f"{path}, train_index").tolist())),
    ).check(str(path))


def read_cifar_batch(path: Path) -> tuple[Array, Array]:
    """Read one original binary batch: uint8 images [n, 3, 32, 32] and classes [n]."""
    data = contents(path)
    if len(data) % CIFAR_ROW:
        row = len(data) // CIFAR_ROW
        raise DataError(f"{path}: {len(data)} bytes are not whole rows of {CIFAR_ROW}; truncated in row {row}")
    rows = np.frombuffer(data, np.uint8).reshape(-1, CIFAR_ROW)
    wrong = np.flatnonzero(rows[:, 0] >= len(CIFAR10_CLASSES))
    if len(wrong):
        raise DataError(f"{path}, row {wrong[0]}: class {rows[wrong[0], 0]}, expected 0 .. 9; not a CIFAR-10 batch")
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def read_cifar_binary(folder: Path) -> Dataset:
    """Read CIFAR-10 as published: five training batches and one test batch."""
    batches = [read_cifar_batch(folder / f"data_batch_{i}.bin") for i in range(1, 6)]
    test_x, test_y = read_cifar_batch(folder / "test_batch.bin")
    return Dataset(
        "cifar10",
        scaled(np.concatenate([x for x, _ in batches])),
        integers(np.concatenate([y for _, y in batches]), str(folder)),
        None,
        CIFAR10_CLASSES,
        scaled(test_x),
        integers(test_y, str(folder)),
    ).check(str(folder))
