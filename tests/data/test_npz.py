"""Datasets of the user's own in .npz files, good, bad and hostile."""

from __future__ import annotations

import contextlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError
from imperfed.data import readers


def toy(n: int = 6) -> dict[str, np.ndarray]:
    return {"x": np.linspace(-1, 2, 4 * n).reshape(n, 4), "y": np.arange(n) % 3}


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_npz_with_everything(tmp_path: Path) -> None:
    path = npz(
        tmp_path / "own.npz",
        x=np.array([[[0, 255], [51, 0]], [[0, 0], [0, 0]]], "u1"),
        y=np.array([1, 0], "u1"),
        candidates=np.array([[0.0, 1, 1], [1, 0, 0]]),
        x_test=np.full((1, 2, 2), 255, "u1"),
        y_test=np.array([2]),
        classes=np.array(["cat", "lynx", "dog"]),
        site=np.array([5, 8], "i2"),
    )
    own = readers.read_npz(path)
    assert own.name == "own"
    assert own.x.shape == (2, 1, 2, 2)
    assert torch.allclose(own.x[0, 0], torch.tensor([[0.0, 1.0], [0.2, 0.0]]))
    assert own.y is not None
    assert own.y.tolist() == [1, 0]
    assert own.candidates is not None
    assert own.candidates.tolist() == [[False, True, True], [True, False, False]]
    assert own.test_x is not None
    assert own.test_x.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]
    assert own.test_y is not None
    assert own.test_y.tolist() == [2]
    assert own.classes == ("cat", "lynx", "dog")
    assert own.column is not None
    assert own.column.tolist() == [5, 8]
    assert own.column.dtype == torch.int64


def test_npz_with_little(tmp_path: Path) -> None:
    named_by_number = readers.read_npz(npz(tmp_path / "y.npz", **toy()))
    assert named_by_number.classes == ("0", "1", "2")
    assert named_by_number.x.shape == (6, 4)
    sets_only = readers.read_npz(npz(tmp_path / "c.npz", x=np.ones((2, 3), "i4"), candidates=np.eye(2, 5) == 1))
    assert sets_only.y is None
    assert len(sets_only.classes) == 5
    colour = readers.read_npz(npz(tmp_path / "rgb.npz", x=np.full((2, 3, 8, 8), 255, "u1"), y=np.arange(2)))
    assert colour.x.shape == (2, 3, 8, 8)
    assert colour.x.max() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "no array 'x'; found y"),
        ({"y": None}, "no true classes, candidate sets or labels"),
        ({"candidate": np.ones((6, 3))}, "unknown array 'candidate'"),
        ({"x": np.array([[1, 2], [3]], dtype=object)}, "'x' is ragged, pickled or damaged"),
        ({"y": np.array([0, None] * 3, dtype=object)}, "'y' is ragged, pickled or damaged"),
        ({"x": np.array([["a", "b"]] * 6)}, "x: expected numbers"),
        ({"x": np.ones(6)}, r"x: expected numbers .* float64 of shape \(6,\)"),
        ({"x": np.ones((6, 2)) * 1j}, "x: expected numbers"),
        ({"x": np.ones((0, 2)), "y": np.arange(0)}, "no examples"),
        ({"x": np.ones((6, 0))}, "no examples"),
        ({"x": np.diag([1, 1, np.nan, 1, np.inf, 1])}, r"row 2, feature 2: nan .*2 such rows"),
        ({"x": np.full((6, 2), 1e300)}, "row 0, feature 0: inf is not a finite float32"),
        ({"x": np.ones((6, 8, 8, 3), "u1")}, "channels last"),
        ({"y": np.arange(5)}, "6 examples but 5 true classes"),
        ({"y": np.zeros((6, 1), int)}, r"y: expected a vector of integers.*\(6, 1\)"),
        ({"y": np.zeros(6)}, "y: expected a vector of integers"),
        ({"y": np.array([0, 1, -1, 0, 1, 2])}, "row 2: label -1 is outside"),
        ({"y": np.array([0, 1, 10**12, 0, 1, 2])}, "class 1000000000000 among 6 examples"),
        ({"y": np.full(6, -1)}, "row 0: label -1 is outside"),
        ({"classes": np.array(["a", "b"])}, "row 2: label 2 is outside"),
        ({"classes": np.arange(3)}, "classes: expected a vector of strings"),
        ({"candidates": np.full((6, 3), 0.5)}, "candidates, row 0, column 0: 0.5 is neither 0 nor 1"),
        ({"candidates": np.ones(6)}, "candidates: expected a matrix of 0 and 1"),
        ({"candidates": np.eye(6, 3)}, "row 3: the candidate set is empty"),
        ({"candidates": np.eye(6)[[0, 1, 2, 1, 1, 2]]}, "row 3: the true class 0 is not among"),
        ({"site": np.array(["a"] * 6)}, "site: expected a vector of integers"),
        ({"x_test": np.ones((2, 4))}, "needs both"),
        ({"x_test": np.ones((2, 5)), "y_test": np.arange(2)}, "test set: an example has shape"),
    ],
)
def test_bad_npz_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = npz(tmp_path / "bad.npz", **{k: v for k, v in (toy() | changes).items() if v is not None})
    with pytest.raises(DataError, match=message) as error:
        readers.read_npz(path)
    assert str(path) in str(error.value)


class Trap:
    """Would leave a trace if anything unpickled it."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Trap, "sprung", True)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    inside = npz(tmp_path / "inside.npz", **toy(), classes=np.array([Trap()], dtype=object))
    single = io.BytesIO()
    np.save(single, np.ones(3))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "single.npz").write_bytes(single.getvalue())
    for path in (
        inside,
        tmp_path / "pickle.npz",
        tmp_path / "single.npz",
    ):
        with pytest.raises(DataError, match=path.name):
            readers.read_npz(path)
    assert not Trap.sprung


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_damaged_npz_is_read_or_named_but_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = npz(tmp_path_factory.mktemp("npz") / "own.npz", **toy(), classes=np.array(["a", "b", "c"]))
    raw = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(DataError):
        readers.read_npz(path)
