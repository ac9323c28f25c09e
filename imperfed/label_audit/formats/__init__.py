"""Files of the user's own with other labels: one module per format, each with `rewrite` and its inverse `restore`.

`rewrite` changes the labels of the given rows, keeps those that were there in a further column, and nothing else:
what it need not touch stays byte for byte where the format allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

NewLabels = Mapping[int, str]
"""The new label of every row that changes, by its number in the file."""


@dataclass(frozen=True)
class Place:
    """Where a file keeps its labels, and where those that were given are kept."""

    label: str
    """The column of the labels; empty for folders of images by class."""
    given: str
    """The column that is added."""
    delimiter: str = ","
    classes: tuple[str, ...] = ()


class LabelFormat(Protocol):
    """What a module of this package offers."""

    def rewrite(self, source: Path, target: Path, place: Place, new: NewLabels) -> None:
        """Write the file with other labels."""

    def restore(self, source: Path, target: Path, place: Place) -> None:
        """Write the file as it was before `rewrite`."""


def format_of(file: Path) -> LabelFormat | None:
    """Return how a file is written again; None if it cannot be."""
    from imperfed.label_audit.formats import archive_labels, folder_labels, parquet_labels, text_labels

    if file.is_dir():
        return folder_labels
    known: dict[str, LabelFormat] = {
        ".csv": text_labels,
        ".tsv": text_labels,
        ".parquet": parquet_labels,
        ".npz": archive_labels,
    }
    return known.get(file.suffix.lower())
