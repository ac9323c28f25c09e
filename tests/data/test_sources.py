"""The catalogue of built-in datasets; the real files are read where IMPERFED_DATA points to them."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.core.errors import DataError, UsageError
from imperfed.data import sources
from imperfed.data.dataset import Dataset

REAL = sources.data_folder()  # before any test points elsewhere
NAMES = {
    *("digits", "mnist", "fashion-mnist", "lost", "birdsong", "fg-net", "italian"),
    *("cifar10", "wisdm", "pneumoniamnist", "fire", "chestxray14"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))
    return tmp_path


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype("u1").tobytes()))


def write_cifar_subset(path: Path, index: list[int], label: int) -> None:
    path.parent.mkdir(exist_ok=True)
    n = len(index)
    np.savez(
        path,
        x_train=np.full((n, 4, 4, 3), label, "u1"),
        y_train=np.full(n, label),
        train_index=np.array(index),
        x_test=np.full((1, 4, 4, 3), label, "u1"),
        y_test=np.array([label]),
        class_names=np.array(["a", "b", "c"]),
    )


# -- where it is looked for -------------------------------------------------------------------------------------------


def test_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("IMPERFED_DATA", "~/sets")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert sources.data_folder() == Path("/home/ada/sets")
    monkeypatch.setenv("IMPERFED_DATA", "")
    assert sources.data_folder() == Path("/cache/imperfed")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert sources.data_folder() == Path("/home/ada/.cache/imperfed")


def test_catalogue(folder: Path) -> None:
    catalogue = sources.sources()
    assert set(catalogue) >= NAMES  # further files of the folder add their own
    for name, source in catalogue.items():
        assert source.name == name
        assert source.title
        assert source.origin.endswith(".")
        assert all(len(digest) == 64 for digest in source.files.values())
        assert source.present(folder) == (name == "digits")
        assert source.verify(folder) == []


def test_missing_files_say_where_they_are_looked_for_and_come_from(folder: Path) -> None:
    write_idx(folder / "mnist/train-images-idx3-ubyte.gz", np.zeros((1, 2, 2)))
    with pytest.raises(DataError) as error:
        sources.load("mnist")
    message = str(error.value)
    assert "mnist/t10k-labels-idx1-ubyte.gz" in message
    assert "train-images" not in message
    for part in (str(folder), "LeCun", "CC BY-SA 3.0", "IMPERFED_DATA"):
        assert part in message
    with pytest.raises(DataError, match=r"lost: did not find pll/lost\.mat in"):
        sources.load("lost")
    with pytest.raises(DataError, match="cifar10: found none of cifar-10-batches-bin, cifar10/cifar10_subset"):
        sources.load("cifar10")


def test_unknown_names(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown dataset 'fashon-mnist'\. Did you mean 'fashion-mnist'"):
        sources.load("fashon-mnist")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"table\.csv: your own dataset must be one file ending in \.npz or \.mat"):
        sources.load(str(folder / "table.csv"))


def test_own_file(folder: Path) -> None:
    np.savez(folder / "own.npz", x=np.ones((3, 2)), y=np.array([0, 1, 0]))
    assert sources.load(str(folder / "own.npz")).name == "own"
    with pytest.raises(DataError, match=r"other\.npz: no such file"):
        sources.load(str(folder / "other.npz"))
    with pytest.raises(DataError, match="elsewhere: no such file or folder"):
        sources.load(str(folder / "elsewhere"))
    with pytest.raises(UsageError, match="elsewhere: no such file or folder here, and unknown dataset 'elsewhere'"):
        sources.load("elsewhere")


def test_verify_looks_at_unpacked_contents(folder: Path) -> None:
    known = hashlib.sha256(b"contents").hexdigest()
    source = sources.Source(
        "s", "S", lambda _: pytest.fail("read"), "nowhere.", {"a.gz": known, "b": known, "c": known}
    )
    (folder / "a.gz").write_bytes(gzip.compress(b"contents", 1))
    (folder / "b").write_bytes(b"Contents")
    assert source.missing(folder) == ["c"]
    assert source.verify(folder) == ["b"]
    (folder / "a.gz").write_bytes(gzip.compress(b"contents", 9))
    assert source.verify(folder) == ["b"]
    (folder / "a.gz").write_bytes(gzip.compress(b"contents")[:-5])
    assert source.verify(folder) == ["a.gz", "b"]


# -- how each is read, from small files -------------------------------------------------------------------------------


def test_digits(folder: Path) -> None:
    digits = sources.load("digits")
    assert digits.x.shape == (1797, 1, 8, 8)
    assert digits.x.dtype == torch.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert torch.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_fashion_mnist_and_its_test_set(folder: Path) -> None:
    for split, n in (("train", 3), ("t10k", 2)):
        write_idx(folder / f"fashion_mnist/{split}-images-idx3-ubyte.gz", np.full((n, 4, 4), 51 * n))
        write_idx(folder / f"fashion_mnist/{split}-labels-idx1-ubyte.gz", np.arange(n) + 7)
    read = sources.load("fashion-mnist")
    assert read.name == "fashion-mnist"
    assert read.x.shape == (3, 1, 4, 4)
    assert read.x[0, 0, 0, 0] == pytest.approx(0.6)
    assert read.test_x[0, 0, 0, 0] == pytest.approx(0.4)
    assert [read.classes[i] for i in read.y] == ["Sneaker", "Bag", "Ankle boot"]
    assert read.test_y.tolist() == [7, 8]


def test_cifar10_takes_what_is_there(folder: Path) -> None:
    write_cifar_subset(folder / "cifar10/cifar10_subset_more.npz", [11, 20, 23], 2)
    assert sources.load("cifar10").ids == ("11", "20", "23")
    write_cifar_subset(folder / "cifar10/cifar10_subset.npz", [7, 9], 1)
    both = sources.load("cifar10")
    assert both.ids == ("7", "9", "11", "20", "23")
    assert both.y.tolist() == [1, 1, 2, 2, 2]
    assert torch.equal((both.x[:, 0, 0, 0] * 255).round().long(), both.y)
    assert both.test_y.tolist() == [1, 2]
    (folder / "cifar-10-batches-bin").mkdir()
    with pytest.raises(DataError, match=r"data_batch_1\.bin: no such file"):
        sources.load("cifar10")
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (folder / f"cifar-10-batches-bin/{name}.bin").write_bytes(bytes([9]) + bytes(3072))
    whole = sources.load("cifar10")
    assert whole.y.tolist() == [9] * 5


def test_wisdm_leaves_out_rows_with_missing_values(folder: Path) -> None:
    (folder / "wisdm").mkdir()
    arrays = {"x": np.array([[1, 2], [np.nan, 3], [4, 5]]), "y": np.array([0, 1, 1]), "user": np.array([33, 33, 2])}
    path = folder / "wisdm/wisdm_transformed.npz"
    np.savez(path, **arrays, class_names=np.array(["Walking", "Jogging"]))
    read = sources.load("wisdm")
    assert read.x.tolist() == [[1, 2], [4, 5]]
    assert read.y.tolist() == [0, 1]
    assert read.column.tolist() == [33, 2]
    assert read.ids == ("0", "2")
    np.savez(path, **(arrays | {"user": np.array([1])}), class_names=np.array(["Walking", "Jogging"]))
    with pytest.raises(DataError, match="3 rows in x, 3 in y and 1 in user"):
        sources.load("wisdm")


def test_pneumoniamnist_labels_are_a_column(folder: Path) -> None:
    (folder / "pneumoniamnist").mkdir()
    parts = {f"{s}_images": np.full((n, 3, 3), n, "u1") for s, n in (("train", 4), ("val", 9), ("test", 2))}
    parts |= {f"{s}_labels": np.ones((n, 1), "u1") for s, n in (("train", 4), ("val", 9), ("test", 2))}
    np.savez(folder / "pneumoniamnist/pneumoniamnist.npz", **parts)
    read = sources.load("pneumoniamnist")
    assert (len(read), len(read.test_x)) == (4, 2)
    assert read.y.tolist() == [1, 1, 1, 1]
    assert read.classes == ("normal", "pneumonia")


# -- the real files ---------------------------------------------------------------------------------------------------


def real(name: str, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    source = sources.sources()[name]
    if not source.present(REAL):
        pytest.skip(f"{name}: {', '.join(source.missing(REAL))} not in {REAL}; set IMPERFED_DATA")
    assert source.verify(REAL) == []
    monkeypatch.setenv("IMPERFED_DATA", str(REAL))
    return sources.load(name)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "occurring", "mean", "largest"),
    [
        ("lost", (1122, 108), 16, 14, 2.2317, 3),
        ("birdsong", (4998, 38), 13, 13, 2.1755, 4),
        ("fg-net", (1002, 262), 78, 63, 7.4770, 11),
        ("italian", (21878, 519), 90, 77, 1.5958, 4),
    ],
)
def test_real_candidate_sets(
    name: str,
    shape: tuple[int, int],
    classes: int,
    occurring: int,
    mean: float,
    largest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = real(name, monkeypatch)
    sizes = read.candidates.sum(1)
    assert read.name == name
    assert read.x.shape == shape
    assert len(read.classes) == read.candidates.shape[1] == classes
    assert len(read.y.unique()) == occurring
    assert sizes.double().mean() == pytest.approx(mean, abs=5e-5)
    assert sizes.max() == largest


@pytest.mark.parametrize(
    ("name", "shape", "test", "counts"),
    [
        ("fashion-mnist", (60000, 1, 28, 28), 10000, [6000] * 10),
        ("mnist", (60000, 1, 28, 28), 10000, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("pneumoniamnist", (4708, 1, 28, 28), 624, [1214, 3494]),
        ("fire", (1500, 3, 64, 64), 0, [500] * 3),
        ("wisdm", (4944, 43), 0, [2029, 1612, 587, 507, 134, 75]),
    ],
)
def test_real_true_classes(
    name: str, shape: tuple[int, ...], test: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = real(name, monkeypatch)
    assert read.x.shape == shape
    assert (0 if read.test_x is None else len(read.test_x)) == test
    assert torch.bincount(read.y).tolist() == counts
    if read.x.ndim == 4:
        assert (read.x.min(), read.x.max()) == (0, 1)
    if name == "wisdm":
        assert sorted(set(read.column.tolist())) == list(range(1, 37))


def test_real_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    read = real("cifar10", monkeypatch)
    assert len(set(read.ids)) == len(read)
    assert read.x.shape[1:] == (3, 32, 32)
    assert torch.bincount(read.y).tolist() == [len(read) // 10] * 10
    assert read.classes == sources.readers.CIFAR10_CLASSES
    assert torch.allclose(read.x.mean((0, 2, 3)), torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.01)
