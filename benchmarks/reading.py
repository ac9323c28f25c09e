"""Seconds to inspect and to read a large table of many sites, compared with pandas: `python -m benchmarks.reading`.

500,000 rows of 50 columns over 20 CSV files: 46 columns of numbers, two of words, an id and a class. pandas reads the
same files one after the other and stops at its frames. `inspect` guesses the declaration, reads the rows by it, and
looks at all labels and values; reading goes on to float32 inputs, checked labels and unique ids. They take turns, and
the ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import csv

from imperfed.census.inspect import inspect
from imperfed.data.files.declaration import FILE, read_declaration
from imperfed.data.files.reading import read_sites

NUMBERS = 46
RESULTS = Path(__file__).parent / "results" / "reading.json"


def write(folder: Path, rows: int, sites: int) -> None:
    """Write one file of random rows per site."""
    for k in range(sites):
        draw = np.random.default_rng(k)
        n = rows // sites
        columns: dict[str, object] = {"patient": [f"p-{k}-{i}" for i in range(n)]}
        columns |= {f"w{j}": draw.normal(50.0, 10.0, n).round(3) for j in range(NUMBERS)}
        columns |= {name: np.array(["low", "mid", "high"])[draw.integers(3, size=n)] for name in ("grade", "stage")}
        columns["diagnosis"] = np.array(["asthma", "flu", "gout", "none"])[draw.integers(4, size=n)]
        csv.write_csv(pyarrow.table(columns), folder / f"site-{k:02}.csv")


def by_pandas(folder: Path) -> int:
    """Read the frames only."""
    return sum(len(pd.read_csv(path)) for path in sorted(folder.glob("*.csv")))


def by_inspect(folder: Path) -> int:
    """Guess, read and look at everything, as if for the first time."""
    (folder / FILE).unlink(missing_ok=True)
    return inspect(folder).census.rows


def by_reading(folder: Path) -> int:
    """Read inputs, labels and ids by the declaration that `inspect` wrote."""
    return sum(len(site.rows) for site in read_sites(read_declaration(folder)).check().sites)


READERS: dict[str, Callable[[Path], int]] = {"pandas": by_pandas, "inspect": by_inspect, "reading": by_reading}


def measure(folder: Path, rows: int, turns: int) -> dict[str, object]:
    """Return the median seconds of each reader, and the median ratios to pandas."""
    times: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in range(turns):
        for name, read in READERS.items():
            began = time.perf_counter()
            assert read(folder) == rows
            times[name].append(time.perf_counter() - began)
    seconds = {name: round(statistics.median(taken), 3) for name, taken in times.items()}
    ratios = {
        f"{name} / pandas": round(
            statistics.median(b / a for a, b in zip(times["pandas"], times[name], strict=True)), 2
        )
        for name in ("inspect", "reading")
    }
    return {"seconds": seconds, **ratios}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=500_000)
    options.add_argument("--sites", type=int, default=20)
    options.add_argument("--turns", type=int, default=3)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, chosen.rows, chosen.sites)
        results = {"rows": chosen.rows, "sites": chosen.sites} | measure(folder, chosen.rows, chosen.turns)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
