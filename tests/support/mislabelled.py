"""Small federations with exact labels of which some are wrong, and known to be: in every format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from tests.support.written_files import declare, write_table

CLASSES = ("finch", "robin", "wren")
SITES = ("north", "south")
ROWS = 60
WRONG = {"north": range(0, ROWS, 5), "south": range(0)}
"""The rows whose label is that of the next class."""


def birds(site: str, spread: float = 0.3) -> dict[str, Any]:
    """Three well separated classes; one label in five of the north is wrong."""
    draw = np.random.default_rng(SITES.index(site))
    true = np.arange(ROWS) % 3
    given = true.copy()
    given[list(WRONG[site])] = (true[list(WRONG[site])] + 1) % 3
    centres = np.array([[2.0, 0, 0], [0, 2, 0], [0, 0, 2]])
    x = centres[true] + spread * draw.normal(size=(ROWS, 3))
    columns: dict[str, Any] = {"ring": [f"{site[0]}{i:03}" for i in range(ROWS)]}
    columns |= {name: x[:, j].round(3).tolist() for j, name in enumerate(("beak", "wing", "tail"))}
    columns |= {name: [CLASSES[c] for c in of] for name, of in (("bird", given), ("true", true))}
    return columns


def declared(sites: str, **more: Any) -> Declaration:
    """What the columns mean."""
    labels = LabelColumns("exact", CLASSES, "bird", truth="true")
    return Declaration("birds", sites, id="ring", inputs=Inputs(("beak", "wing", "tail")), labels=labels, **more)


def in_tables(folder: Path, ending: str = "csv", spread: float = 0.3) -> Path:
    """One table per site."""
    for site in SITES:
        write_table(folder / f"sites/{site}.{ending}", birds(site, spread))
    return declare(folder, declared(f"sites/*.{ending}"))


def in_sets(folder: Path) -> Path:
    """One table per site with candidate sets; those of the wrong rows miss the true class."""
    for site in SITES:
        columns = birds(site)
        given = [CLASSES.index(name) for name in columns.pop("bird")]
        beside = [(CLASSES.index(name) + 2) % 3 for name in columns.pop("true")]
        sets = [{g, b} if i % 2 else {g} for i, (g, b) in enumerate(zip(given, beside, strict=True))]
        columns["bird"] = ["|".join(CLASSES[c] for c in sorted(one)) for one in sets]
        write_table(folder / f"sites/{site}.csv", columns)
    labels = LabelColumns("candidates", CLASSES, "bird")
    return declare(folder, replace(declared("sites/*.csv"), labels=labels))


def in_arrays(folder: Path) -> Path:
    """One archive per site, classes by number."""
    for site in SITES:
        columns = birds(site)
        x = np.stack([columns[name] for name in ("beak", "wing", "tail")], 1)
        given = np.array([CLASSES.index(name) for name in columns["bird"]])
        write_table(folder / f"{site}.npz", {"x": x, "bird": given})
    labels = LabelColumns("exact", CLASSES, "bird")
    return declare(folder, Declaration("birds", "*.npz", inputs=Inputs(array="x"), labels=labels))
