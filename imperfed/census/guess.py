"""A first federation.toml for files without one: the guessed role of every column, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.census.columns import merged
from imperfed.census.flaws import absent
from imperfed.census.folder_layout import FolderLayout, find_layout
from imperfed.census.input_roles import guess_inputs
from imperfed.census.label_roles import guess_labels
from imperfed.census.pixels import guess_size
from imperfed.census.profiles import profile
from imperfed.census.roles import (
    Look,
    guess_attribute,
    guess_group,
    guess_id,
    guess_image,
    guess_site,
    leave_out,
)
from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.data.files.memory import Source
from imperfed.data.files.problems import Problems
from imperfed.data.files.reading import AlreadyRead
from imperfed.data.files.table import IMAGES
from imperfed.data.files.undeclared import UndeclaredText

ARRAYS = ("candidates", "labels", "y", "target")
"""The usual names of the array of labels in an .npz file."""


@dataclass(frozen=True)
class Guess:
    """A declaration, and one sentence for everything that was guessed."""

    declaration: Declaration
    why: tuple[str, ...]
    files: AlreadyRead = field(default_factory=dict, repr=False)
    """The text files that were read for it."""

    def text(self) -> str:
        """Return the text of federation.toml."""
        head = "# Guessed by `imperfed inspect` from the files. Check every line, above all what a label means.\n"
        return head + self.declaration.toml()


def guess(path: Path, label: str = "", site: str = "") -> Guess:
    """Guess the federation.toml of these files; `label`, `site`: columns that are known already."""
    layout = find_layout(path)
    sites = {name: layout.place(path) for name, path in layout.named().items()}
    besides: dict[str, Any] = dict(layout.besides)
    about = Declaration(
        layout.folder.resolve().name, sites if layout.others else layout.sites, folder=layout.folder, **besides
    )
    if layout.images:
        why = f"sites: {layout.sites}: {len(layout.files)} folders, each with one folder of images per class"
        inputs, labels, whys = _image_folders(layout)
    elif layout.files[0].suffix.lower() == ".npz":
        why = f"sites: {layout.sites}: {len(layout.files)} .npz files"
        inputs, labels, whys = _arrays(layout)
    else:
        why = f"sites: {layout.sites}: " + (
            "one file for all sites" if "*" not in layout.sites else f"{len(layout.files)} files"
        )
        return _table(about, layout, why, label, site)
    if label or site:
        raise UsageError(f"{layout.folder}: only tables have columns; leave --label and --site out")
    return Guess(replace(about, inputs=inputs, labels=labels), (why, *_besides(layout), *whys))


def _table(about: Declaration, layout: FolderLayout, why: str, label: str, where: str) -> Guess:
    """Guess the role of every column, beginning with those that are easiest to recognise."""
    problems, texts = Problems(), dict[Source, UndeclaredText]()
    files = profile(layout.files, problems, texts)
    problems.check(about.name)
    look = Look.at(layout, merged(files), files, [why, *_besides(layout)])
    if not look.columns:
        raise DataError(
            f"{about.folder}: the files at {layout.sites} have no column in common; a federation needs some"
        )
    site = guess_site(look, where) if "*" not in layout.sites else ""
    if where and not site:
        raise UsageError(f"{layout.folder}: every site has a file of its own ({layout.sites}); leave --site out")
    image = guess_image(look)
    labels = guess_labels(look, site, label)
    return replace(guess_rest(replace(about, site_column=site, labels=labels), look, image), files=texts)


def guess_rest(about: Declaration, look: Look, image: str) -> Guess:
    """Guess the roles of the columns that are neither sites nor labels nor, if `image` names one, images."""
    attribute = None if image else guess_attribute(look)
    name = guess_id(look, image, about.site_column)
    group = guess_group(look)
    leave_out(look, about.labels, about.site_column)
    inputs = guess_inputs(look, image)
    look.why += absent(look.layout, look.files, look.scattered)
    return Guess(replace(about, id=name, group=group, inputs=inputs, attribute=attribute), tuple(look.why))


def _besides(layout: FolderLayout) -> list[str]:
    return [f"{key}: {place}, by its name" for key, place in layout.besides.items()]


def _image_folders(layout: FolderLayout) -> tuple[Inputs, LabelColumns, list[str]]:
    """Guess for folders of images by class: labels are exact, and the classes are the names of the folders."""
    files = {site: [p for p in sorted(site.glob("*/*")) if p.name.lower().endswith(IMAGES)] for site in layout.paths}
    classes = sorted({path.parent.name for paths in files.values() for path in paths})
    size, channels, why = guess_size(files[layout.paths[0]])
    whys = [why, f"labels: exact; the folder of an image is its class, {len(classes)} in total"]
    return Inputs(size=size, channels=channels), LabelColumns("exact", tuple(classes)), whys


def _arrays(layout: FolderLayout) -> tuple[Inputs, LabelColumns, list[str]]:
    """Guess for .npz files: the inputs are `x`, the labels the first array with a usual name."""
    from imperfed.data.readers import read_arrays

    if "*" not in layout.sites:
        raise DataError(
            f"{layout.files[0]}: one .npz file for all sites needs no federation.toml; use it for a run as it is: "
            f"imperfed run METHOD --data {layout.files[0]}"
        )
    files = [read_arrays(path) for path in layout.paths]
    name = next((name for name in ARRAYS if all(name in arrays for arrays in files)), "")
    if not name or any("x" not in arrays for arrays in files):
        raise DataError(
            f"{layout.files[0]}: expected the arrays x and one of {', '.join(ARRAYS)}, found "
            f"{', '.join(files[0])}; write federation.toml by hand"
        )
    kind, classes = guess_array([np.asarray(arrays[name]) for arrays in files])
    declared = files[0].get("classes")
    classes = classes if declared is None else tuple(map(str, declared.tolist()))
    whys = ["inputs: the array x", f"labels: {kind}; the array {name}, {len(classes)} classes"]
    return Inputs(array="x"), LabelColumns(kind, classes, name), whys


def guess_array(parts: Sequence[npt.NDArray[Any]]) -> tuple[str, tuple[str, ...]]:
    """Guess the kind and the classes of arrays of labels, one per site: one class per row, or one column per class."""
    if parts[0].ndim == 1:
        return "exact", tuple(map(str, sorted({value for part in parts for value in part.tolist()})))
    return "candidates" if parts[0].dtype == bool else "annotated", tuple(map(str, range(parts[0].shape[1])))
