"""Datasets with several classes per example."""

from __future__ import annotations

from pathlib import Path

import torch

from imperfed.data import from_arrays, readers
from imperfed.data.dataset import Dataset
from imperfed.data.source import Source

CHESTXRAY14 = "chestxray14/chestxray14_part1_64.npz"
TEST = 2
"""The number that marks rows of the official test list; 0 and 1 mark its training and validation lists."""


def _chestxray14(folder: Path) -> Dataset:
    """Read the images, each normalised by its own mean and deviation, as is usual; no patient is in both parts."""
    path = folder / CHESTXRAY14
    arrays = readers.read_arrays(path, "images", "labels", "patient", "split", "file_names", "class_names")
    x = from_arrays.pixels(arrays["images"], f"{path}, images")
    x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)
    y = from_arrays.membership(arrays["labels"], f"{path}, labels").to(torch.int8)
    patient, split = (from_arrays.integers(arrays[name], f"{path}, {name}") for name in ("patient", "split"))
    train, test = (split != TEST).nonzero().flatten(), (split == TEST).nonzero().flatten()
    names = from_arrays.names(arrays["file_names"], f"{path}, file_names")
    return Dataset(
        "chestxray14",
        x[train],
        y[train],
        None,
        from_arrays.names(arrays["class_names"], f"{path}, class_names"),
        x[test],
        y[test],
        group=patient[train],
        ids=tuple(names[row] for row in train.tolist()),
    )


CATALOGUE = (
    Source(
        "chestxray14",
        "ChestX-ray14, its first archive: 3954 + 1045 chest X-rays 64 x 64 of 1335 patients, 14 findings",
        _chestxray14,
        "the NIH Clinical Center (nihcc.app.box.com/v/ChestXray-NIHCC), images_001 averaged to 64 x 64, as arrays "
        "images, labels, patient, split, file_names, class_names; free use with attribution.",
        {CHESTXRAY14: "d1e90f6a6e5c067849a991be65292591f41bb4bac89df9f528d9e4b990dc632b"},
    ),
)
