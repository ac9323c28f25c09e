"""Seconds to read a million rows of CSV, compared with pyarrow alone: `python -m benchmarks.files`.

Ten columns of numbers, candidate sets of ten classes, and an id that both read as text. pyarrow is given the same types
and stops at its table; imperfed continues to float32 inputs, checked labels and unique ids. The two take turns, and the
ratio is the median over the turns. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import csv

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.data.files.reading import read_sites

CLASSES = tuple("abcdefghij")
NUMERIC = tuple(f"f{j}" for j in range(10))
RESULTS = Path(__file__).parent / "results" / "files.json"


def write(path: Path, rows: int, ids: bool) -> None:
    """Write a file of random rows."""
    draw = np.random.default_rng(0)
    columns: dict[str, object] = {name: draw.normal(size=rows).round(6) for name in NUMERIC}
    pairs = np.array([f"{a}|{b}" for a in CLASSES for b in CLASSES if a != b])
    columns["labels"] = pairs[draw.integers(len(pairs), size=rows)]
    if ids:
        columns["id"] = [f"row-{i}" for i in range(rows)]
    csv.write_csv(pyarrow.table(columns), path)


def by_pyarrow(path: Path, ids: bool) -> int:
    """Read only the table, with the types that imperfed uses."""
    text = pyarrow.string()
    types = dict.fromkeys(NUMERIC, pyarrow.float64()) | {"labels": pyarrow.dictionary(pyarrow.int32(), text)}
    convert = csv.ConvertOptions(column_types=types | ({"id": text} if ids else {}))
    return int(csv.read_csv(path, convert_options=convert).num_rows)


def by_imperfed(path: Path, ids: bool) -> int:
    """Read inputs, labels and ids."""
    declaration = Declaration(
        name="million",
        sites={"one": path.name},
        id="id" if ids else "",
        inputs=Inputs(numeric=NUMERIC),
        labels=LabelColumns("candidates", CLASSES, "labels"),
        folder=path.parent,
    )
    return len(read_sites(declaration).check().sites[0].rows)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--turns", type=int, default=9)
    chosen = options.parse_args()
    results = {}
    for ids in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "site.csv"
            write(path, chosen.rows, ids)
            times: dict[str, list[float]] = {"pyarrow": [], "imperfed": []}
            for _ in range(chosen.turns):
                for name, read in (("pyarrow", by_pyarrow), ("imperfed", by_imperfed)):
                    began = time.perf_counter()
                    assert read(path, ids) == chosen.rows
                    times[name].append(time.perf_counter() - began)
            ratio = statistics.median(b / a for a, b in zip(times["pyarrow"], times["imperfed"], strict=True))
            median = {name: round(statistics.median(seconds), 3) for name, seconds in times.items()}
            results["with ids" if ids else "without ids"] = median | {
                "ratio": round(ratio, 2),
                "MiB": round(path.stat().st_size / 2**20),
            }
    results["peak MiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    RESULTS.write_text(json.dumps({"rows": chosen.rows} | results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
