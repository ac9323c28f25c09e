"""Files that nobody has described, and what is guessed of them."""

from __future__ import annotations

from pathlib import Path

from imperfed.census.guess import Guess
from imperfed.data.files.declaration import parse


def write(folder: Path, **files: str) -> Path:
    """CSV files; two underlines in a name stand for a folder."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read_back(found: Guess) -> Guess:
    """The guess, once what would be written has been read back to the same."""
    assert parse(found.text(), found.declaration.file) == found.declaration
    return found


CROWD = (
    "id,w,labels,truth\nr1,0.5,cat|lynx,cat\nr2,1.5,dog,dog\nr3,2,cat|dog|lynx,lynx\nr4,1,cat,cat\nr5,2,dog|cat,dog\n"
)
