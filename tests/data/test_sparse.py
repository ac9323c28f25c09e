"""Readers of sparse multi-label files, and their complaints."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix

from imperfed.core.errors import DataError
from imperfed.data import sparse
from imperfed.data.sparse import pack, read_multilabel_mat, read_xc, width

X = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, -1, 4]], dtype=np.float64)
Y = np.array([[1, 0, 1], [0, 0, 1]])  # classes x instances
PACKED = [
    [[1, 3, 4, 4], [2, 1, 0, 0]],
    [[4, 4, 4, 4], [0, 0, 0, 0]],
    [[0, 2, 3, 4], [3, -1, 4, 0]],
]
TEXT = "3 4 2\n0 1:2 3:1.0\n 2:0.5\n0,1 0:3 2:-1 3:4e0\n"


def mat(folder: Path, **arrays: object) -> Path:
    path = folder / "own.mat"
    scipy.io.savemat(path, arrays)
    return path


def xc(folder: Path, text: str) -> Path:
    path = folder / "own.txt"
    path.write_text(text)
    return path


def test_rows_say_how_many_features_there_are():
    x = torch.tensor(PACKED)
    assert width(x) == 4
    assert width(x[1:2]) == 4
    assert width(x.flip(1)) == 0
    assert width(torch.rand(3, 2, 4)) == 0
    assert width(torch.rand(3, 1, 8, 8)) == 0
    x[0, 0, 0] = 5
    assert width(x) == 0


@pytest.mark.parametrize(("data", "target"), [("dataset", "class"), ("data", "target")])
@pytest.mark.parametrize("sparse", [False, True])
def test_matlab_files_under_all_their_names(tmp_path: Path, data: str, target: str, sparse: bool):
    dataset = read_multilabel_mat(mat(tmp_path, **{data: csc_matrix(X) if sparse else X, target: Y}))
    assert dataset.x.tolist() == PACKED
    assert dataset.y.dtype == torch.int8
    assert dataset.y.tolist() == Y.T.tolist()
    assert dataset.classes == ("0", "1")


def test_minus_one_is_absent(tmp_path: Path):
    assert read_multilabel_mat(mat(tmp_path, dataset=X, **{"class": 2 * Y - 1})).y.tolist() == Y.T.tolist()


def test_an_official_test_set_has_as_many_slots(tmp_path: Path):
    path = mat(tmp_path, train_data=X[:2], train_target=Y[:, :2], test_data=X[2:], test_target=Y[:, 2:])
    dataset = read_multilabel_mat(path)
    assert dataset.x.tolist() == PACKED[:2]
    assert dataset.test_x.tolist() == PACKED[2:]
    assert dataset.test_y.tolist() == Y.T[2:].tolist()


def test_extreme_classification_text(tmp_path: Path):
    dataset = read_xc(xc(tmp_path, TEXT))
    assert dataset.x.tolist() == [PACKED[0], [[2, 4, 4, 4], [0.5, 0, 0, 0]], PACKED[2]]
    assert dataset.y.tolist() == Y.T.tolist()
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert torch.equal(read_xc(packed).x, dataset.x)


def outcome(read: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> object:
    try:
        return [part.tolist() for part in read()]
    except DataError as error:
        return str(error)


def both(text: str, path: Path = Path("own.txt")) -> tuple[object, object]:
    """What the reader of a whole file gives, and what the reader of lines gives."""
    raw = text.encode()
    lines = partial(sparse._read_line_by_line, raw, path)
    return outcome(lambda: sparse._read_fast(raw, path) or lines()), outcome(lines)


row = st.tuples(
    st.lists(st.integers(0, 4), max_size=3),
    st.dictionaries(st.integers(0, 8), st.floats(-(2.0**99), 2.0**99, width=32), max_size=4),
)


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=5), st.booleans())
def test_fast_and_slow_give_the_same(rows: list[tuple[list[int], dict[int, float]]], ordered: bool):
    lines = []
    for labels, x in rows:
        pairs = [f"{i}:{v!r}" for i, v in (sorted(x.items()) if ordered else x.items())]
        lines.append(f"{','.join(map(str, labels))} {' '.join(pairs)}")
    fast, slow = both("\n".join([f"{len(rows)} 9 5", *lines]))
    assert fast == slow
    assert not isinstance(fast, str)


def test_large_files_are_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = read_xc(xc(tmp_path, TEXT))
    monkeypatch.setattr(sparse, "_read_line_by_line", None)
    monkeypatch.setattr(sparse, "SMALL", 0)
    dataset = read_xc(xc(tmp_path, TEXT))
    assert torch.equal(dataset.x, expected.x)
    assert torch.equal(dataset.y, expected.y)


LABELS = ("1.0", "+1", "-1", "1e0", "0,1.0", "0,+1", "1,", ",1", "5", "0x1", "1:2", "\u0663", " ", "", "0#")
FEATURES = ("+1:2", "1.0:2", "-1:2", "1e0:2", ":2", "9:2", "1,2:3", "1_0:2", "qid:3", "1", "2:1 1:2", "1:2 1:3", "#")
VALUES = ("", "2:3", "1e39", "inf", "nan", "0x1", "1_0", "0", "-0.0", ".5", "+.5e-3", "\u0663", "2 # 3", "2 ", "e")
ENDS = ("\r", "\r\n", "\n", "\n\n", "\x0b", "\u20281 2:1", "\t2:3", "  ")


@pytest.mark.parametrize(
    "line",
    [
        *("0", "", " ", " 1:2", "  1:2", "0\t1:2"),
        *(f"{label} 1:2" for label in LABELS),
        *(f"0 {feature}" for feature in FEATURES),
        *(f"0 1:{value}" for value in VALUES),
        *(f"0 1:2{end}" for end in ENDS),
    ],
)
def test_whatever_is_odd_is_read_as_by_lines(line: str):
    for text in (f"1 9 5\n{line}", f"3 9 5\n1 2:3\n{line}\n1 2:3\n", f"4 9 5\n1 2:3\n{line}\n1 2:3\n"):
        fast, slow = both(text)
        assert fast == slow


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("3 4\n", "line 1: expected the numbers of rows, features and classes; found '3 4'"),
        ("3 4 x\n", "line 1: expected the numbers"),
        ("4 4 2\n0 1:2\n", "line 1: 4 rows announced, but 1 lines follow"),
        ("1 4 2\n2 1:2\n", "line 2: label '2' is not a whole number from 0 to 1"),
        ("2 4 2\n0 1:2\n0,-1 1:2\n", "line 3: label '-1' is not"),
        ("1 4 2\n0 4:2\n", "line 2: feature '4' is not a whole number from 0 to 3"),
        ("1 4 2\n0 1\n", "line 2: '1' is not feature:value"),
        ("1 4 2\n0 1:one\n", "line 2: 'one' is not a number"),
        ("1 4 2\n0 1:nan\n", "line 2: 'nan' is not a finite number"),
        ("1 99999999 2\n0 1:1\n", "99999999 features; sparse inputs hold fewer than 16777216"),
        ("", "the file is empty"),
    ],
)
def test_bad_text_is_named_by_its_line(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(DataError) as caught:
        read_xc(xc(tmp_path, text))
    assert complaint in str(caught.value)
    assert "own.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"data": X}, "found data; a multi-label file holds dataset, class or data, target or train_data"),
        ({"data": X, "target": Y[:, :2]}, "3 rows in data but 2 instances (columns) in target"),
        ({"data": X, "target": Y + 1}, "target, instance 0, class 0: 2 is none of 1, 0 and -1"),
        ({"data": "words", "target": Y}, "data: expected numbers, instances x features"),
    ],
)
def test_bad_matlab_files(tmp_path: Path, arrays: dict[str, object], complaint: str):
    with pytest.raises(DataError) as caught:
        read_multilabel_mat(mat(tmp_path, **arrays))
    assert complaint in str(caught.value)


def test_a_damaged_file_is_no_traceback(tmp_path: Path):
    path = tmp_path / "own.mat"
    path.write_bytes(b"MATLAB 5.0 nonsense" * 20)
    with pytest.raises(DataError, match=r"own\.mat"):
        read_multilabel_mat(path)
    with pytest.raises(DataError, match="no such file"):
        read_xc(tmp_path / "absent.txt")


def test_many_features_are_held_exactly():
    d = (1 << 24) - 1
    x = pack(np.array([0, 2]), np.array([d - 2, d - 1]), np.ones(2, np.float32), d, "here")
    assert x[0, 0].long().tolist() == [d - 2, d - 1, d]
