"""Datasets with one class per example: images, activities, and the classic datasets with real candidate sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from imperfed.core.errors import DataError
from imperfed.data import from_arrays, readers
from imperfed.data.dataset import Dataset
from imperfed.data.source import Source

IDX_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
CIFAR10_BINARIES = "cifar-10-batches-bin"
CIFAR10_SUBSETS = ("cifar10/cifar10_subset.npz", "cifar10/cifar10_subset_more.npz")
FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


# -- how each is read ------------------------------------------------------------------------------------------------


def _digits(folder: Path) -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images.astype(np.float32) / 16)[:, None]
    return Dataset("digits", x, torch.from_numpy(bunch.target.astype(np.int64)), None, from_arrays.numbered(10))


def _idx_files(folder: str, *digests: str) -> dict[str, str]:
    return {f"{folder}/{name}-ubyte.gz": digest for name, digest in zip(IDX_FILES, digests, strict=True)}


def _idx(name: str, folder_name: str, classes: tuple[str, ...]) -> Callable[[Path], Dataset]:
    def read(folder: Path) -> Dataset:
        images, labels, test_images, test_labels = (folder / folder_name / f"{file}-ubyte.gz" for file in IDX_FILES)
        train, test = readers.read_idx_images(images, labels), readers.read_idx_images(test_images, test_labels)
        return Dataset(name, *train, None, classes, *test)

    return read


def _candidate_sets(name: str, path: str) -> Callable[[Path], Dataset]:
    return lambda folder: replace(readers.read_mat(folder / path), name=name)


def cifar10(folder: Path) -> Dataset:
    """Return the whole dataset if its original files are present, else as much of it as the subset files hold."""
    if (folder / CIFAR10_BINARIES).exists():
        return readers.read_cifar_binary(folder / CIFAR10_BINARIES)
    parts = [readers.read_cifar_npz(folder / path) for path in CIFAR10_SUBSETS if (folder / path).exists()]
    return Dataset(
        "cifar10",
        torch.cat([p.x for p in parts]),
        torch.cat([p.y for p in parts if p.y is not None]),
        None,
        parts[0].classes,
        torch.cat([p.test_x for p in parts if p.test_x is not None]),
        torch.cat([p.test_y for p in parts if p.test_y is not None]),
        ids=tuple(name for p in parts for name in p.ids),
    )


def _wisdm(folder: Path) -> Dataset:
    path = folder / "wisdm/wisdm_transformed.npz"
    arrays = readers.read_arrays(path, "x", "y", "user", "class_names")
    x = from_arrays.features(arrays["x"], f"{path}, x")
    y, user = (from_arrays.integers(arrays[name], f"{path}, {name}") for name in ("y", "user"))
    if not len(x) == len(y) == len(user):
        raise DataError(f"{path}: {len(x)} rows in x, {len(y)} in y and {len(user)} in user")
    kept = (~x.isnan().any(1)).nonzero().flatten()
    classes = from_arrays.names(arrays["class_names"], f"{path}, class_names")
    ids = tuple(map(str, kept.tolist()))  # rows keep the numbers they have in the file
    return Dataset("wisdm", x[kept], y[kept], None, classes, column=user[kept], ids=ids)


def _pneumoniamnist(folder: Path) -> Dataset:
    path = folder / "pneumoniamnist/pneumoniamnist.npz"
    arrays = readers.read_arrays(path, "train_images", "train_labels", "test_images", "test_labels")
    train_x, test_x = (from_arrays.pixels(arrays[f"{s}_images"], f"{path}, {s}_images") for s in ("train", "test"))
    # The labels are stored as a column.
    train_y, test_y = (
        from_arrays.integers(arrays[f"{s}_labels"].reshape(-1), f"{path}, {s}_labels") for s in ("train", "test")
    )
    return Dataset("pneumoniamnist", train_x, train_y, None, ("normal", "pneumonia"), test_x, test_y)


def _fire(folder: Path) -> Dataset:
    path = folder / "fire/fire_smoke_64.npz"
    arrays = readers.read_arrays(path, "images", "labels", "file_names", "class_names")
    return Dataset(
        "fire",
        from_arrays.pixels(arrays["images"], f"{path}, images"),
        from_arrays.integers(arrays["labels"], f"{path}, labels"),
        None,
        from_arrays.names(arrays["class_names"], f"{path}, class_names"),
        ids=from_arrays.names(arrays["file_names"], f"{path}, file_names"),
    )


# -- the catalogue ---------------------------------------------------------------------------------------------------

CLASSIC_SETS = (
    "the collection of real candidate-label sets in GitHub pruirui/partial_label_realworld_dataset, file {}; {}."
)
ACADEMIC = "collected by M.-L. Zhang, for academic purposes and at your own risk"

CATALOGUE = (
    Source("digits", "Handwritten digits, 1797 images 8 x 8", _digits, "scikit-learn, which bundles it; BSD licence."),
    Source(
        "mnist",
        "MNIST, 60000 + 10000 handwritten digits 28 x 28",
        _idx("mnist", "mnist", from_arrays.numbered(10)),
        "the MNIST database by LeCun, Cortes and Burges (yann.lecun.com/exdb/mnist); CC BY-SA 3.0.",
        _idx_files(
            "mnist",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    Source(
        "fashion-mnist",
        "Fashion-MNIST, 60000 + 10000 articles of clothing 28 x 28",
        _idx("fashion-mnist", "fashion_mnist", FASHION_CLASSES),
        "GitHub zalandoresearch/fashion-mnist, folder data/fashion; MIT licence, Zalando SE.",
        _idx_files(
            "fashion_mnist",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    Source(
        "lost",
        "Lost, faces in a television series with the names in the captions as candidate sets, 1122 rows",
        _candidate_sets("lost", "pll/lost.mat"),
        CLASSIC_SETS.format("lost.mat", ACADEMIC),
        {"pll/lost.mat": "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f"},
    ),
    Source(
        "birdsong",
        "BirdSong, song syllables with the species in the recording as candidate sets, 4998 rows",
        _candidate_sets("birdsong", "pll/BirdSong.mat"),
        CLASSIC_SETS.format("BirdSong.mat", ACADEMIC),
        {"pll/BirdSong.mat": "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743"},
    ),
    Source(
        "fg-net",
        "FG-NET, faces with ages guessed by several people as candidate sets, 1002 rows",
        _candidate_sets("fg-net", "pll/FG-NET.mat"),
        CLASSIC_SETS.format("FG-NET.mat", ACADEMIC),
        {"pll/FG-NET.mat": "5b8d43e40cee007f6438a7a74d600b5cf67ac596754a322ce91b0fc6811f45db"},
    ),
    Source(
        "italian",
        "Italian, words with their possible parts of speech as candidate sets, 21878 rows",
        _candidate_sets("italian", "pll/italian.mat"),
        CLASSIC_SETS.format("italian.mat", "licence not stated"),
        {"pll/italian.mat": "7981fff3efd2df21abfac990d71777dd9637bf6ab8ccd15066b086287b9e6fde"},
    ),
    Source(
        "cifar10",
        "CIFAR-10, colour images 32 x 32: all 50000 + 10000, or 10000 + 2000 from each subset file",
        cifar10,
        f"A. Krizhevsky (www.cs.toronto.edu/~kriz/cifar.html), binary version, which unpacks to {CIFAR10_BINARIES}; "
        "no licence stated.",
        {
            CIFAR10_SUBSETS[0]: "fba2448e9b2a594c889b7a1f310eab0536b295baf034ac20c9a7e40f30ba6805",
            CIFAR10_SUBSETS[1]: "1b4a9e3bc5be3d02ecee0c39a4647157fc0a0a6d5d9d5cea5557ac8e0f91d9ca",
        },
        any_of=(CIFAR10_BINARIES, *CIFAR10_SUBSETS),
    ),
    Source(
        "wisdm",
        "WISDM v1.1, six activities of 36 phone users: 4944 of 5418 rows, the 474 with missing values left out (mostly "
        "sitting and standing)",
        _wisdm,
        "the WISDM Lab, activity recognition v1.1, transformed, as arrays x, y, user, class_names; for research use.",
        {"wisdm/wisdm_transformed.npz": "9af5f3ed5874b9d4c4a14821a9623a4649084e15a84ee050f001d4eecdb9506d"},
    ),
    Source(
        "pneumoniamnist",
        "PneumoniaMNIST, 4708 + 624 chest X-rays 28 x 28 (the 524 validation images are left out)",
        _pneumoniamnist,
        "MedMNIST (medmnist.com), pneumoniamnist.npz; CC BY 4.0. The known checksum is that of a copy with the "
        "training rows in another order.",
        {"pneumoniamnist/pneumoniamnist.npz": "ce8250bf5debc3c389b89affcc1d9feac579b26e875a848301e9f937bb0c2eee"},
    ),
    Source(
        "fire",
        "Fire, normal and smoke, 1500 colour images 64 x 64, 1476 of them distinct",
        _fire,
        "GitHub nganltp/Fire-Detection, Fireimages_data/TRAIN, as arrays images, labels, file_names, class_names; "
        "licence not stated.",
        {"fire/fire_smoke_64.npz": "05b63adc729d6d47242b79f7e36bd6ce1adba978738e969f4e9aae1b00ffa49a"},
    ),
)
