"""The readers: what they return for good files, and which sentence they end with for every kind of bad one."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError
from imperfed.data import readers

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">BBBB", 0, 0, CODES[array.dtype.str[1:]], array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def numbers(*shape: int, dtype: str = "u1") -> np.ndarray:
    return (np.arange(np.prod(shape)) * 7 % 251).reshape(shape).astype(dtype)


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


# -- IDX -------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    dtype=st.sampled_from(sorted(CODES)),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    packed=st.booleans(),
    cut=st.integers(1, 10),
)
def test_idx_round_trip_and_truncation(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], packed: bool, cut: int
) -> None:
    folder, array = tmp_path_factory.mktemp("idx"), numbers(*shape, dtype=dtype)
    data = gzip.compress(idx(array)) if packed else idx(array)
    back = readers.read_idx(write(folder / "whole", data))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    with pytest.raises(DataError, match="short"):
        readers.read_idx(write(folder / "short", data[:-cut]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\0\0", "not an IDX file; it starts with the bytes 00 00"),
        (b"PK\3\4" + bytes(9), "not an IDX file; it starts with the bytes 50 4b 03 04"),
        (b"\0\0\x0a\1" + bytes(4), "not an IDX file"),  # no such type
        (b"\0\0\x08\0" + bytes(4), "not an IDX file"),  # no dimensions
        (b"\0\0\x08\3" + bytes(5), "truncated in its header, at byte 9 of 16"),
        (idx(numbers(2, 3)) + b"\0", r"19 bytes, but the header \(uint8 of shape \(2, 3\)\) promises 18"),
        (gzip.compress(idx(numbers(2, 3)), mtime=0)[:-9], "gzip file is truncated or corrupt"),
        (gzip.compress(idx(numbers(2, 3)), mtime=0)[:-8] + bytes(8), "gzip file is truncated or corrupt"),  # wrong CRC
        (gzip.compress(b"", mtime=0), "not an IDX file"),
    ],
)
def test_bad_idx_files(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        readers.read_idx(write(tmp_path / "images", data))
    assert str(tmp_path / "images") in str(error.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    for read in (
        readers.read_idx,
        readers.read_mat,
        readers.read_npz,
        readers.read_cifar_npz,
        readers.read_cifar_batch,
    ):
        with pytest.raises(DataError, match="nowhere: no such file"):
            read(tmp_path / "nowhere")
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)
        with pytest.raises(DataError, match="the file is empty"):
            read(write(tmp_path / "empty", b""))


def test_idx_images_are_scaled_and_must_match_their_labels(tmp_path: Path) -> None:
    pixels = np.array([[[0, 51], [102, 255]], [[255, 0], [0, 0]]], "u1")
    images, labels = write(tmp_path / "i", idx(pixels)), write(tmp_path / "l", idx(np.array([3, 1], "u1")))
    x, y = readers.read_idx_images(images, labels)
    assert x.shape == (2, 1, 2, 2)
    assert torch.allclose(x[0, 0], torch.tensor([[0.0, 0.2], [0.4, 1.0]]))
    assert y.tolist() == [3, 1]
    assert y.dtype == torch.int64
    with pytest.raises(DataError, match="2 images but 3 labels"):
        readers.read_idx_images(images, write(tmp_path / "l", idx(numbers(3))))
    with pytest.raises(DataError, match="expected uint8 images"):
        readers.read_idx_images(labels, labels)
    with pytest.raises(DataError, match="expected a vector of integers"):
        readers.read_idx_images(images, images)


# -- MATLAB ----------------------------------------------------------------------------------------------------------

MAT = {
    "data": np.array([[1.5, -2], [0, 3], [4, 4], [7, -1]]),
    "partial_target": np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]]),  # classes x instances
    "target": np.array([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]]),
}


def mat(path: Path, **changes: Any) -> Path:
    scipy.io.savemat(path, {k: v for k, v in (MAT | changes).items() if v is not None})
    return path


@pytest.mark.parametrize("convert", [np.asarray, lambda a: scipy.sparse.csc_matrix(a.astype(float))])
def test_mat_dense_and_sparse(tmp_path: Path, convert: Any) -> None:
    read = readers.read_mat(mat(tmp_path / "toy.mat", **{k: convert(v) for k, v in MAT.items()}))
    assert read.name == "toy"
    assert read.x.dtype == torch.float32
    assert read.x.tolist() == MAT["data"].tolist()
    assert read.y is not None
    assert read.y.tolist() == [0, 2, 2, 0]
    assert read.candidates is not None
    assert read.candidates.int().tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 0]]
    assert read.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": None}, "no variable 'target'"),
        ({"partial_target": MAT["partial_target"].T}, r"partial_target: .* expected classes x 4 .*transpose"),
        ({"target": MAT["target"].T}, r"target: .* expected classes x 4 .*transpose"),
        ({"data": MAT["data"][:3]}, "expected classes x 3 instances"),
        ({"target": np.vstack([MAT["target"], np.zeros((1, 4))])}, "target: .* expected classes x 4"),
        ({"target": np.eye(3, 4)}, r"target, row 3: 0 true classes"),
        ({"target": np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 1, 1, 0]])}, r"target, row 1: 2 true classes"),
        ({"target": MAT["target"] * 2 - 1}, r"target, row 0, column 1: -1 is neither 0 nor 1"),
        ({"partial_target": np.eye(3, 4)}, r"row 3: the candidate set is empty"),
        ({"target": np.array([[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0]])}, "row 3: the true class 1 is not among"),
        ({"data": np.where(MAT["data"] == 3, np.nan, MAT["data"])}, r"row 1, feature 1: nan"),
        ({"data": np.array([["a"], ["b"], ["c"], ["d"]], dtype=object)}, "data: expected numbers"),
    ],
)
def test_bad_mat_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        readers.read_mat(mat(tmp_path / "bad.mat", **changes))
    assert "bad.mat" in str(error.value)


def test_a_sparse_matrix_that_points_outside_itself(tmp_path: Path) -> None:
    wild = scipy.sparse.csc_matrix(MAT["partial_target"].astype(float))
    wild.indices[2] = 7
    with pytest.raises(DataError, match=r"wild\.mat: cannot be read"):
        readers.read_mat(mat(tmp_path / "wild.mat", partial_target=wild))


def test_damaged_mat_files(tmp_path: Path) -> None:
    data = mat(tmp_path / "whole.mat").read_bytes()
    for damaged in (data[:200], b"not a MATLAB file at all" * 20, b"x"):
        with pytest.raises(DataError, match=r"bad\.mat"):
            readers.read_mat(write(tmp_path / "bad.mat", damaged))


# -- CIFAR-10 --------------------------------------------------------------------------------------------------------


def batch(n: int, first: int = 0) -> bytes:
    rows = numbers(n, 3073)
    rows[:, 0] = (np.arange(n) + first) % 10
    return rows.tobytes()


def test_cifar_binary(tmp_path: Path) -> None:
    for i in range(1, 6):
        write(tmp_path / f"data_batch_{i}.bin", batch(2, i))
    write(tmp_path / "test_batch.bin", batch(3))
    read = readers.read_cifar_binary(tmp_path)
    assert read.x.shape == (10, 3, 32, 32)
    assert read.y is not None
    assert read.y.tolist() == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert read.classes[3] == "cat"
    row = numbers(2, 3073)[1]  # red plane first, each plane row by row
    assert read.x[1, 1, 2, 5] == np.float32(row[1 + 1024 + 2 * 32 + 5]) / np.float32(255)
    assert read.test_x is not None
    assert len(read.test_x) == 3
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_4\.bin: no such file"):
        readers.read_cifar_binary(tmp_path)


def test_bad_cifar_batches(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"b\.bin: 9218 bytes are not whole rows of 3073; truncated in row 2"):
        readers.read_cifar_batch(write(tmp_path / "b.bin", batch(3)[:-1]))
    wrong = bytearray(batch(3))
    wrong[3073] = 10
    with pytest.raises(DataError, match=r"b\.bin, row 1: class 10, expected 0 \.\. 9"):
        readers.read_cifar_batch(write(tmp_path / "b.bin", bytes(wrong)))


def cifar_arrays() -> dict[str, np.ndarray]:
    return {
        "x_train": numbers(3, 4, 4, 3),
        "y_train": np.array([1, 0, 1], "u1"),
        "train_index": np.array([7, 9, 30], "i4"),
        "x_test": numbers(2, 4, 4, 3),
        "y_test": np.array([0, 1], "u1"),
        "class_names": np.array(["airplane", "automobile"]),
    }


def test_cifar_npz(tmp_path: Path) -> None:
    arrays = cifar_arrays()
    read = readers.read_cifar_npz(npz(tmp_path / "c.npz", **arrays))
    assert read.x.shape == (3, 3, 4, 4)
    assert read.x[2, 1, 3, 0] == np.float32(arrays["x_train"][2, 3, 0, 1]) / np.float32(255)
    assert read.ids == ("7", "9", "30")
    assert read.classes == ("airplane", "automobile")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "no array 'y_test'"),
        ({"x_train": np.ones((3, 4, 4, 3))}, "x_train: expected uint8 images"),
        ({"y_train": np.array([0, 1])}, "3 examples but 2 true classes"),
        ({"y_train": np.array([0, 1, 2])}, "row 2: label 2 is outside"),
        ({"train_index": np.array([1, 2])}, "3 examples but 2 ids"),
    ],
)
def test_bad_cifar_npz(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays = {k: v for k, v in (cifar_arrays() | changes).items() if v is not None}
    with pytest.raises(DataError, match=message):
        readers.read_cifar_npz(npz(tmp_path / "c.npz", **arrays))
