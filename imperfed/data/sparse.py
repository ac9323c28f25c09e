"""Sparse multi-label data: MATLAB files and the Extreme Classification text format.

An input row is float32 [2, L]: feature numbers above their values. Unused slots, of which every row has at least one,
hold the number of features and the value 0, so that each row says how many features there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.dataset import Dataset
from imperfed.data.from_arrays import numbered
from imperfed.data.readers import decoding, read_mat
from imperfed.data.stored_files import contents, existing

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float32]

MOST_FEATURES = 1 << 24
"""Feature numbers are stored as float32, which represents integers exactly up to this one."""

LAYOUTS = (
    (("dataset", "class"),),
    (("data", "target"),),
    (("train_data", "train_target"), ("test_data", "test_target")),
)
"""Names of features (instances x features) and labels (classes x instances) in MATLAB files; test sets come second."""


def pack(first: Whole, at: Whole, values: Real, features: int, where: str) -> Tensor:
    """Return sparse rows as one tensor [n, 2, L]; row r is `at` and `values` from first[r] up to first[r + 1] - 1."""
    if features >= MOST_FEATURES:
        raise DataError(f"{where}: {features} features; sparse inputs hold fewer than {MOST_FEATURES}")
    lengths = np.diff(first)
    x = np.zeros((len(lengths), 2, int(lengths.max(initial=0)) + 1), np.float32)
    x[:, 0] = features
    row = np.repeat(np.arange(len(lengths)), lengths)
    slot = np.arange(len(at)) - np.repeat(first[:-1], lengths)
    x[row, 0, slot], x[row, 1, slot] = at, values
    return torch.from_numpy(x)


def width(x: Tensor) -> int:
    """Return the number of features of sparse rows; 0 if `x` does not hold sparse rows."""
    if x.ndim != 3 or x.shape[1] != 2 or not len(x):
        return 0
    number, value = x[:, 0], x[:, 1]
    features = int(number[0, -1])
    whole = bool((number == number.round()).all()) and bool((number >= 0).all()) and bool((number <= features).all())
    ends = bool((number[:, -1] == features).all()) and not value[number == features].any()
    return features if whole and ends else 0


# -- MATLAB ----------------------------------------------------------------------------------------------------------


def names_in(path: Path) -> set[str]:
    """Return the names of the variables in a MATLAB file."""
    import scipy.io

    with decoding(path, "a MATLAB file of version 7 or older"):
        return {name for name, _, _ in scipy.io.whosmat(existing(path), appendmat=False)}


def layout_of(variables: set[str]) -> tuple[tuple[str, str], ...] | None:
    """Return the layout whose variables are all present, if any."""
    return next((pairs for pairs in LAYOUTS if {name for pair in pairs for name in pair} <= variables), None)


def read_own_mat(path: Path) -> Dataset:
    """Read the user's own MATLAB file: several labels per example, or candidate sets."""
    variables = names_in(path)
    return read_mat(path) if "partial_target" in variables or not layout_of(variables) else read_multilabel_mat(path)


def read_multilabel_mat(path: Path) -> Dataset:
    """Read features and several labels per example, under any of the names that such files use."""
    import scipy.io

    variables = names_in(path)
    layout = layout_of(variables)
    if layout is None:
        known = " or ".join(", ".join(name for pair in pairs for name in pair) for pairs in LAYOUTS)
        raise DataError(f"{path}: found {', '.join(sorted(variables)) or 'nothing'}; a multi-label file holds {known}")
    with decoding(path, "a MATLAB file of version 7 or older"):
        file = scipy.io.loadmat(path, appendmat=False, variable_names=[name for pair in layout for name in pair])
    parts = [(_features(file[x], f"{path}, {x}"), _labels(file[y], f"{path}, {y}")) for x, y in layout]
    for (x, y), (x_name, y_name) in zip(parts, layout, strict=True):
        if len(x) != len(y):
            raise DataError(f"{path}: {len(x)} rows in {x_name} but {len(y)} instances (columns) in {y_name}")
    x, y = parts[0]
    test_x, test_y = parts[1] if len(parts) > 1 else (None, None)
    if test_x is not None:
        x, test_x = same_length([x, test_x])
    return Dataset(path.stem, x, y, None, numbered(y.shape[1]), test_x, test_y).check(str(path))


def _features(matrix: Any, where: str) -> Tensor:
    """Return a matrix of numbers, dense or sparse, as sparse rows."""
    from scipy.sparse import csr_matrix

    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        raise DataError(f"{where}: expected numbers, instances x features; found {matrix.dtype} of {matrix.shape}")
    rows = csr_matrix(matrix, dtype=np.float32)
    rows.check_format(full_check=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return pack(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data, rows.shape[1], where)


def _labels(matrix: Any, where: str) -> Tensor:
    """Return classes x instances of 0 / 1 or -1 / 1 as int8 [n, C]."""
    values = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix).T
    if values.dtype.kind not in "biuf" or values.ndim != 2:
        raise DataError(f"{where}: expected classes x instances of 0 and 1; found {values.dtype} of {values.shape}")
    odd = np.argwhere((values != 0) & (values != 1) & (values != -1))
    if len(odd):
        row, label = (int(i) for i in odd[0])
        raise DataError(f"{where}, instance {row}, class {label}: {values[row, label]} is none of 1, 0 and -1")
    return torch.from_numpy((values == 1).astype(np.int8))


def same_length(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return all parts padded to the number of slots of the longest."""
    slots = max(x.shape[2] for x in parts)
    return [_padded(x, slots) for x in parts]


def _padded(x: Tensor, slots: int) -> Tensor:
    padding = torch.zeros(len(x), 2, slots - x.shape[2])
    padding[:, 0] = x[:1, 0, -1]
    return torch.cat([x, padding], 2)


# -- Extreme Classification ------------------------------------------------------------------------------------------


SMALL = 1 << 20
"""Bytes up to which a file is read line by line: importing scikit-learn would take longer."""
DIGITS = b"0123456789"
PLAIN = DIGITS + b",:.eE+- \n"
"""The only bytes passed to the fast reader: comments, tabs and words such as nan have a special meaning to it."""
ODD = re.compile(rb"[ ,\n][.eE+-]|\n,*:")
"""With all digits removed: a label or feature number such as 1.0 or +1, which the fast reader would accept; or a line
without labels that does not begin with a space."""


def read_xc(path: Path) -> Dataset:
    """Read the Extreme Classification Repository's format: `n d c`, then lines of `label,label feature:value ...`."""
    raw = contents(path)
    x, y = (len(raw) > SMALL and _read_fast(raw, path)) or _read_line_by_line(raw, path)
    return Dataset(path.stem, x, y, None, numbered(y.shape[1])).check(str(path))


def _read_fast(raw: bytes, path: Path) -> tuple[Tensor, Tensor] | None:
    """Return inputs and labels by scikit-learn's reader; None if anything is odd, so that the lines must be checked."""
    from sklearn.datasets import load_svmlight_file

    head, _, body = raw.partition(b"\n")
    if body.translate(None, PLAIN) or ODD.search((b"\n" + body).translate(None, DIGITS)):
        return None
    rows, features, classes = _header(head.decode("utf-8", "replace"), path)
    if len(body.splitlines()) != rows:  # the fast reader would skip blank lines
        return None
    try:
        matrix, labels = load_svmlight_file(
            BytesIO(body), n_features=features, dtype=np.float32, multilabel=True, zero_based=True
        )
    except ValueError:
        return None
    of = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    label = np.fromiter(chain.from_iterable(labels), np.int64, len(of))
    if len(labels) != rows or label.max(initial=0) >= classes or not np.isfinite(matrix.data).all():
        return None
    y = torch.zeros(rows, classes, dtype=torch.int8)
    y[of, label] = 1
    return pack(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data, features, str(path)), y


def _read_line_by_line(raw: bytes, path: Path) -> tuple[Tensor, Tensor]:
    """Return inputs and labels, or raise an error naming the line and what is wrong with it."""
    with decoding(path, "text"):
        lines = raw.decode("utf-8").splitlines()
    rows, features, classes = _header(lines[0], path)
    if len(lines) - 1 != rows:
        raise DataError(f"{path}, line 1: {rows} rows announced, but {len(lines) - 1} lines follow")
    y = torch.zeros(rows, classes, dtype=torch.int8)
    first, at, values = [0], [], []
    for row, line in enumerate(lines[1:]):
        where = f"{path}, line {row + 2}"
        labels, _, rest = line.partition(" ")
        for label in filter(None, labels.split(",")):
            y[row, _number(label, classes, "label", where)] = 1
        for word in rest.split():
            feature, colon, value = word.partition(":")
            if not colon:
                raise DataError(f"{where}: {word!r} is not feature:value")
            at.append(_number(feature, features, "feature", where))
            values.append(_value(value, where))
        first.append(len(at))
    return pack(np.array(first), np.array(at, np.int64), np.array(values, np.float32), features, str(path)), y


def _header(line: str, path: Path) -> tuple[int, int, int]:
    words = line.split()
    if len(words) != 3 or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise DataError(f"{path}, line 1: expected the numbers of rows, features and classes; found {line[:80]!r}")
    n, d, c = map(int, words)
    return n, d, c


def _number(word: str, below: int, what: str, where: str) -> int:
    if not word.isdecimal() or int(word) >= below:
        raise DataError(f"{where}: {what} {word!r} is not a whole number from 0 to {below - 1}")
    return int(word)


def _value(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise DataError(f"{where}: {word!r} is not a number") from None
    if not np.isfinite(np.float32(value)):
        raise DataError(f"{where}: {word!r} is not a finite number")
    return value
