"""Small federations of every format and kind of labels, each in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, SensitiveColumn, Uncertain
from tests.support.written_files import declare, write_images, write_table

CLASSES = ("cat", "dog", "lynx")
ROWS = 6


def sets(k: int) -> list[list[str]]:
    """Candidate sets that hold the true class."""
    return [sorted({CLASSES[(i + k) % 3], CLASSES[i % 3]}) for i in range(ROWS)]


def truth() -> list[str]:
    """The true class of every row."""
    return [CLASSES[i % 3] for i in range(ROWS)]


def candidates(folder: Path, ending: str = "csv") -> Path:
    """A table with numbers and a category, candidate sets and truth, test files, and a sensitive attribute."""
    for k, site in enumerate(("north", "south")):
        columns = {
            "id": [f"{site} {i}" for i in range(ROWS)],
            "age": [20.5 + i + k for i in range(ROWS)],
            "sex": ["f", "m"] * (ROWS // 2),
            "animal": sets(k),
            "true": truth(),
            "race": [["a"], ["a", "b"], ["b"]] * (ROWS // 3),
        }
        write_table(folder / f"sites/{site}.{ending}", columns)
        write_table(folder / f"test/{site}.{ending}", {name: columns[name] for name in ("age", "sex", "true", "race")})
    declared = Declaration(
        "animals",
        f"sites/*.{ending}",
        id="id",
        test=f"test/*.{ending}",
        inputs=Inputs(("age",), {"sex": ("f", "m")}),
        labels=LabelColumns("candidates", CLASSES, "animal", truth="true"),
        attribute=SensitiveColumn("race", ("a", "b")),
    )
    return declare(folder, declared)


def annotated(folder: Path, ending: str = "csv") -> Path:
    """One file for two sites with missing and uncertain labels."""
    columns = {
        "where": ["north", "south"] * (ROWS // 2),
        "age": [float(i) for i in range(ROWS)],
        "cat": [1, 0, None, 1, 0, None],
        "dog": [None, None, 1, -1, 0, 1],
    }
    write_table(folder / f"all.{ending}", columns)
    labels = LabelColumns("annotated", ("cat", "dog"), uncertain=Uncertain(("-1",), "positive"))
    declared = Declaration("animals", f"all.{ending}", site_column="where", inputs=Inputs(("age",)), labels=labels)
    return declare(folder, declared)


def arrays(folder: Path) -> Path:
    """Archives of images, candidate sets as a matrix."""
    draw = np.random.default_rng(1)
    for site in ("north", "south"):
        sets = np.eye(3, dtype=np.uint8)[np.arange(ROWS) % 3]
        x = draw.integers(256, size=(ROWS, 4, 4), dtype=np.uint8)
        write_table(folder / f"{site}.npz", {"x": x, "sets": sets, "y": np.arange(ROWS) % 3})
    labels = LabelColumns("candidates", CLASSES, "sets", truth="y")
    return declare(folder, Declaration("arrays", "*.npz", inputs=Inputs(array="x"), labels=labels))


def pictures(folder: Path) -> Path:
    """Folders of images by class."""
    for site in ("north", "south"):
        x = torch.rand(ROWS, 1, 5, 4, generator=torch.Generator().manual_seed(2))
        write_images(folder / "sites" / site, x, [f"{name}/{i}.png" for i, name in enumerate(truth())])
    inputs = Inputs(size=(4, 4), channels=3)
    return declare(folder, Declaration("pictures", "sites/*", inputs=inputs, labels=LabelColumns("exact", CLASSES)))


def paths(folder: Path) -> Path:
    """A table of image paths, one known class each."""
    for site in ("north", "south"):
        x = torch.rand(ROWS, 1, 4, 4, generator=torch.Generator().manual_seed(3))
        files = [f"{site}/{i}.png" for i in range(ROWS)]
        write_images(folder, x, files)
        write_table(folder / f"{site}.csv", {"file": files, "animal": truth()})
    declared = Declaration(
        "paths",
        "*.csv",
        inputs=Inputs(image="file", size=(4, 4), channels=1),
        labels=LabelColumns("positive", CLASSES, "animal"),
    )
    return declare(folder, declared)


def words(folder: Path, ending: str = "csv") -> Path:
    """Sparse text features, several known classes, one test file for all."""
    for site in ("north", "south"):
        text = ["0:1 3:0.5", "", " 2:1e-1", "1:-2  0:3", "4:7", "3:1"]
        write_table(folder / f"sites/{site}.{ending}", {"text": text, "animals": sets(1)})
    write_table(folder / f"test.{ending}", {"text": ["0:1 4:2 1:3", ""], "animals": [["cat"], ["cat", "dog"]]})
    declared = Declaration(
        "words",
        f"sites/*.{ending}",
        test=f"test.{ending}",
        inputs=Inputs(sparse="text", features=5),
        labels=LabelColumns("positives", CLASSES, "animals"),
    )
    return declare(folder, declared)
