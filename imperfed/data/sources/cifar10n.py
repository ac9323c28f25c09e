"""CIFAR-10N: CIFAR-10 with labels from human annotators, some of them wrong. The true classes are known as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from imperfed.core.errors import DataError
from imperfed.data import from_arrays, readers
from imperfed.data.dataset import Dataset
from imperfed.data.source import Source
from imperfed.data.sources.single import CIFAR10_BINARIES, CIFAR10_SUBSETS, cifar10

LABELS = "cifar10/cifar10n_labels.npz"
KINDS = {
    "aggre": ("aggre_label", "the majority of three annotators", 9.01),
    "worse": ("worse_label", "a wrong label of three annotators, if there is one", 40.21),
    "random1": ("random_label1", "the first of three annotators", 17.23),
    "random2": ("random_label2", "the second of three annotators", 18.12),
    "random3": ("random_label3", "the third of three annotators", 17.64),
}
"""Name -> array in the file, whose label it is, percentage of wrong labels among all 50,000."""


def read(kind: str) -> Callable[[Path], Dataset]:
    """Return a reader of CIFAR-10 with labels of this kind, matched to rows by their official position."""

    def dataset(folder: Path) -> Dataset:
        images, path = cifar10(folder), folder / LABELS
        array = KINDS[kind][0]
        arrays = readers.read_arrays(path, array, "clean_label")
        at = torch.tensor([int(name) for name in images.ids])
        labels, true = (from_arrays.integers(arrays[name], f"{path}, {name}") for name in (array, "clean_label"))
        if len(labels) <= int(at.max()) or len(true) != len(labels):
            raise DataError(f"{path}, {array}: {len(labels)} labels, but the images go up to number {int(at.max())}")
        if images.y is None or not torch.equal(true[at], images.y):
            raise DataError(f"{path}: clean_label differs from the images' classes; the file has another order")
        return replace(images, name=f"cifar10n-{kind}", given=labels[at])

    return dataset


CATALOGUE = tuple(
    Source(
        f"cifar10n-{kind}",
        f"CIFAR-10 with labels from human annotators: {whose}; {wrong:g} % are wrong",
        read(kind),
        "github.com/UCSC-REAL/cifar-10-100n, CIFAR-10_human.pt, as an .npz of its arrays; CC BY-NC 4.0. The images are "
        "those of cifar10.",
        {LABELS: "6024485a143efa682792c21d7f2adfdef5a374dce699bb2fcd4d62cd55cc4852"},
        any_of=(CIFAR10_BINARIES, *CIFAR10_SUBSETS),
    )
    for kind, (_, whose, wrong) in KINDS.items()
)
