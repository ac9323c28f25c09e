"""Six hospitals whose tables have everything that real tables have; each trait is at one known place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("patient", "age", "weight", "temp", "crp", "sex", "smoker", "note", "diagnosis")
CLASSES = ("cold", "covid", "flu")
NOTES = ("ok", "cough, dry", 'said "fine"')
Row = dict[str, Any]


def write_messy(folder: Path, rows: int = 60) -> Path:
    """Write the six files and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sites = {name: _rows(name, rows) for name in ("aachen", "basel", "cork", "delft", "essen", "fulda")}
    _set(sites["basel"], "crp", "n/a", rows=slice(0, None, 12))  # 8 % of one site
    _set(sites["cork"], "weight", 99999, rows=slice(0, None, 20))
    _set(sites["cork"], "crp", -999, rows=slice(5, None, 25))
    _set(sites["delft"], "age", "-", rows=slice(3, None, 30))
    _set(sites["delft"], "bed", 7, rows=slice(None))
    _set(sites["essen"], "diagnosis", "sepsis", rows=slice(0, 6))
    sites["essen"][7]["age"] = 1e29
    for row in sites["fulda"]:
        row["weight"] = round(row["weight"] * 1000)
    _set(sites["fulda"], "temp", "", rows=slice(0, None, 11))
    for i, row in enumerate(sites["fulda"][:10]):
        row["patient"] = f"aachen-{i}"
    _write(folder / "aachen.csv", sites["aachen"], delimiter=";", decimal=",")
    _write(folder / "basel.csv", sites["basel"], ending="\r\n", mark="\ufeff")
    _write(folder / "cork.csv", sites["cork"], COLUMNS[::-1])
    _write(folder / "delft.csv", sites["delft"], (*COLUMNS, "bed"))
    _write(folder / "essen.csv", sites["essen"])
    _write(folder / "fulda.csv", sites["fulda"])
    return folder


def _rows(site: str, rows: int) -> list[Row]:
    draw = random.Random(site)
    every = []
    for i in range(rows):
        c = i % 3
        numbers = {"age": draw.randint(20, 90), "weight": round(draw.gauss(75 + 3 * c, 12), 1)}
        numbers |= {"temp": round(draw.gauss(37 + 0.7 * c, 0.5), 1), "crp": round(abs(draw.gauss(20 + 15 * c, 8)), 1)}
        words = {"sex": draw.choice("mf"), "smoker": draw.choice((0, 1)), "note": f"{draw.choice(NOTES)} {i}"}
        every.append({"patient": f"{site}-{i}", **numbers, **words, "diagnosis": CLASSES[c]})
    return every


def _set(table: Sequence[Row], column: str, value: object, rows: slice) -> None:
    for row in table[rows]:
        row[column] = value


def _write(
    path: Path,
    rows: Sequence[Row],
    columns: Sequence[str] = COLUMNS,
    delimiter: str = ",",
    decimal: str = ".",
    ending: str = "\n",
    mark: str = "",
) -> None:
    def cell(value: object) -> str:
        text = str(value).replace(".", decimal) if isinstance(value, float) else str(value)
        return '"' + text.replace('"', '""') + '"' if delimiter in text or '"' in text else text

    lines = [delimiter.join(columns), *(delimiter.join(cell(row[name]) for name in columns) for row in rows)]
    path.write_bytes((mark + ending.join(lines) + ending).encode())
