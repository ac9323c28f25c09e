"""Federations of files for tests: small ones by hand, and datasets written out site by site."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet
from torch import Tensor

from imperfed.core.labels import Labels
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.files.declaration import Declaration
from imperfed.data.labelling import LabelConfig
from imperfed.data.row_split import cut_rows
from imperfed.data.split import SplitConfig

Columns = dict[str, Any]


def write_table(path: Path, columns: Mapping[str, Any]) -> Path:
    """Columns as a file of the kind that its ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(values) for name, values in columns.items()})
    elif path.suffix == ".parquet":
        parquet.write_table(
            pyarrow.table({n: v if isinstance(v, list) else np.asarray(v) for n, v in columns.items()}), path
        )
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            rows.writerow(columns)
            rows.writerows(zip(*([cell(value) for value in values] for values in columns.values()), strict=True))
    return path


def cell(value: Any) -> str:
    """A value as the cell of a text file; numbers with all their digits."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, list | tuple):
        return "|".join(value)
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)


def declare(folder: Path, declaration: Declaration) -> Path:
    """The folder with its federation.toml."""
    declared = replace(declaration, folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    declared.file.write_text(declared.toml(), encoding="utf-8")
    return folder


class Apart:
    """A dataset cut as a run cuts it: what every site holds, as it came."""

    def __init__(self, dataset: Dataset, split: SplitConfig, labelling: LabelConfig, data_seed: int = 0) -> None:
        self.dataset, self.scene = dataset, federate(dataset, split, labelling, data_seed)
        self.cut = cut_rows(dataset, split, data_seed)

    @property
    def names(self) -> tuple[str, ...]:
        return self.scene.federation.sites

    def site(self, k: int) -> tuple[Tensor, Labels, Tensor, list[str]]:
        """Inputs, labels, truth and ids of a site's training rows."""
        assert self.dataset.y is not None
        federation: FederatedData = self.scene
        starts, rows = federation.federation.starts, self.cut.train[k]
        labels = federation.federation.labels.between(starts[k], starts[k + 1])
        return self.dataset.x[rows], labels, self.dataset.y[rows], [self.dataset.ids[row] for row in rows.tolist()]

    def test(self, k: int) -> tuple[Tensor, Tensor]:
        """Inputs and truth of a site's test rows."""
        assert self.dataset.y is not None
        return self.dataset.x[self.cut.test[k]], self.dataset.y[self.cut.test[k]]


def numeric(x: Tensor) -> Columns:
    """Every feature as a column."""
    flat = x.flatten(1).numpy()
    return {f"f{j}": flat[:, j] for j in range(flat.shape[1])}


def write_images(folder: Path, x: Tensor, names: list[str]) -> None:
    """Grey images of 0 .. 1 in steps of 1/255 as PNG files."""
    for image, name in zip(x, names, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).round().byte().numpy()).save(folder / name)
