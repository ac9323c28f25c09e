"""Folders of images by class: an image moves to the folder of its new class, and a list says where it came from."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from imperfed.data.files.dialect import Dialect
from imperfed.data.files.problems import Problems
from imperfed.data.files.table import CLASS, IMAGE, read_table
from imperfed.label_audit.formats import NewLabels, Place


def rewrite(source: Path, target: Path, place: Place, new: NewLabels) -> None:
    """Copy all images, those with other labels into other folders; the list names all that moved."""
    table = read_table(source, {}, Dialect(), Problems())
    assert table is not None
    images, classes = (table.columns[name].to_pylist() for name in (IMAGE, CLASS))
    target.mkdir(parents=True, exist_ok=True)
    moved, taken = [], set(images)
    for row, (image, given) in enumerate(zip(images, classes, strict=True)):
        now = _free(f"{new[row]}/{Path(image).name}", taken) if row in new else image
        if row in new:
            taken.add(now)
            moved.append((now, given, image))
        _copy(source / image, target / now)
    for name in classes:  # a class that no image has any more is still a class
        (target / name).mkdir(exist_ok=True)
    with (target / _list_of(place)).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("image", place.given, "was"), *moved])


def restore(source: Path, target: Path, place: Place) -> None:
    """Copy all images back into the folders from which they came."""
    listed = source / _list_of(place)
    with listed.open(encoding="utf-8", newline="") as file:
        before = {row["image"]: row["was"] for row in csv.DictReader(file)}
    for path in sorted(source.rglob("*")):
        image = path.relative_to(source).as_posix()
        if path.is_dir():
            (target / image).mkdir(parents=True, exist_ok=True)
        elif path != listed:
            _copy(path, target / before.get(image, image))
    for folder in sorted(target.glob("*/")):
        if not any(folder.iterdir()):  # made for images that moved there
            folder.rmdir()


def _list_of(place: Place) -> str:
    return f"{place.given}.csv"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _free(image: str, taken: set[str]) -> str:
    """Return the image's path, with a number where another image has it."""
    path, number, free = Path(image), 1, image
    while free in taken:
        number += 1
        free = path.with_stem(f"{path.stem}-{number}").as_posix()
    return free
