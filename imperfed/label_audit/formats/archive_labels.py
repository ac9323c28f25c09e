"""Archives of arrays (.npz): the labels as an array of the same kind, and the given ones as a further array."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.label_audit.formats import NewLabels, Place


def rewrite(source: Path, target: Path, place: Place, new: NewLabels) -> None:
    """Write the archive with other labels, and the given ones beside them."""
    arrays = _read(source)
    given = arrays[place.label]
    labels = given.astype(object) if given.dtype.kind == "U" else given.copy()
    for row, label in new.items():
        labels[row] = label if given.dtype.kind == "U" else number_of(label, place.classes)
    labels = labels.astype(str) if given.dtype.kind == "U" else labels
    _write(source, target, arrays | {place.label: labels, place.given: given})


def restore(source: Path, target: Path, place: Place) -> None:
    """Put the given labels back, and drop their array."""
    arrays = _read(source)
    arrays[place.label] = arrays.pop(place.given)
    _write(source, target, arrays)


def number_of(label: str, classes: tuple[str, ...]) -> float:
    """Return how an archive of numbers writes a class: as its name where names are numbers, else by its position."""
    return float(label) if any(name.isdecimal() for name in classes) else classes.index(label)


def _read(source: Path) -> dict[str, Any]:
    with np.load(source) as archive:
        return dict(archive)


def _write(source: Path, target: Path, arrays: dict[str, Any]) -> None:
    with zipfile.ZipFile(source) as archive:
        plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    target.parent.mkdir(parents=True, exist_ok=True)
    (np.savez if plain else np.savez_compressed)(target, **arrays)
