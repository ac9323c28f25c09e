"""What an example is, and how its files are written."""

from __future__ import annotations

import csv
import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from imperfed.data.files.declaration import FILE, Declaration

Rows = npt.NDArray[np.int64]
"""Numbers of rows."""
Columns = Mapping[str, Sequence[Any]]
WIDTH = 100
README = """\
# {name}

{about}

{made}

Test rows have true labels and are never trained on. The same command writes the same files again.

## Try

```
{commands}
```
"""


@dataclass(frozen=True)
class Contents:
    """The files of an example, by their paths below its folder."""

    declaration: Declaration
    tables: Mapping[str, Columns] = field(default_factory=dict)
    """CSV or Parquet files, by their endings."""
    images: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)


class Example(ABC):
    """A federation of files; the docstring says what its sites hold."""

    name: ClassVar[str]
    labels: ClassVar[str]
    """The kind of its labels."""
    source: ClassVar[str]
    """The data that it is made from."""
    made_up: ClassVar[str]
    """What about it is not as in the data: sites, labels."""
    commands: ClassVar[tuple[str, ...]]
    """What to try after inspecting it; {folder} stands for its folder."""

    @abstractmethod
    def contents(self, draw: np.random.Generator) -> Contents:
        """Return its files; `draw`: random numbers, the same every time."""

    def write(self, folder: Path, typed: str) -> None:
        """Write the files, federation.toml and README.md; `typed`: the folder as it is written in a command."""
        made = self.contents(np.random.default_rng(0))
        for place, columns in made.tables.items():
            _write_table(folder / place, columns)
        for place, image in made.images.items():
            _write_image(folder / place, image)
        (folder / FILE).write_text(made.declaration.toml(), encoding="utf-8")
        (folder / "README.md").write_text(self.readme(typed), encoding="utf-8")

    def readme(self, typed: str) -> str:
        """Return what README.md says; `typed`: the folder as it is written in a command."""
        about = " ".join(inspect.cleandoc(type(self).__doc__ or "").split())
        made = f"Made from {self.source}. {self.made_up}"
        about, made = (textwrap.fill(text, WIDTH) for text in (about, made))
        return README.format(name=self.name, about=about, made=made, commands="\n".join(self.typed_commands(typed)))

    def typed_commands(self, typed: str) -> tuple[str, ...]:
        """Return the commands to try, as they are typed."""
        return (f"imperfed inspect {typed}", *(command.format(folder=typed) for command in self.commands))


def _write_table(path: Path, columns: Columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({name: list(values) for name, values in columns.items()}), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def _write_image(path: Path, image: npt.NDArray[np.uint8]) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


# -- what several examples do ------------------------------------------------------------------------------------------


def unequal_sites(
    classes: npt.NDArray[np.int64], names: Sequence[str], beta: float, draw: np.random.Generator
) -> Iterator[tuple[str, Rows, Rows]]:
    """Yield every site with its training and test rows: each class is shared out by Dirichlet(beta), a quarter tested.

    The smaller beta, the more the sites differ in their classes.
    """
    home = np.empty(len(classes), np.int64)
    for one in np.unique(classes):
        rows = np.flatnonzero(classes == one)
        home[rows] = draw.choice(len(names), len(rows), p=draw.dirichlet([beta] * len(names)))
    for k, name in enumerate(names):
        rows = draw.permutation(np.flatnonzero(home == k))
        quarter = len(rows) // 4
        yield name, np.sort(rows[quarter:]), np.sort(rows[:quarter])


def digit_scans() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return scikit-learn's handwritten digits: pixels from 0 to 16, [n, 8, 8], and classes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images.astype(np.int64), digits.target.astype(np.int64)


DIGITS = "the handwritten digits of scikit-learn (1,797 scans of 8 x 8 pixels)"
INK = tuple(f"ink_{row}{column}" for row in range(4) for column in range(4))
"""The columns of a scan in a table: the ink in each of 4 x 4 fields, from 0 to 64."""


def ink_columns(scans: npt.NDArray[np.int64]) -> dict[str, Sequence[Any]]:
    """Return scans as columns of a table."""
    fields = scans.reshape(-1, 4, 2, 4, 2).sum((2, 4)).reshape(len(scans), -1)
    return dict(zip(INK, fields.T.tolist(), strict=True))
