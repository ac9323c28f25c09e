"""Memory of large tables: `python -m benchmarks.scale.tables`.

Ten columns of numbers, one of words, an id and a class, in two CSV files. Measured is the peak of anonymous memory of
`imperfed inspect` and of `imperfed run fedavg`, each in processes of their own, and of `run` on the same rows in
Parquet files with `lazy = true`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import csv, parquet

from benchmarks.scale.peak import measure

RESULTS = Path(__file__).parents[1] / "results" / "tables.json"
NUMERIC = tuple(f"f{j}" for j in range(10))
GRADES = ("low", "mid", "high")
CLASSES = ("asthma", "flu", "gout", "none")
PART = 1_000_000
KINDS = ("csv", "parquet")
DECLARATION = f"""name = "table"
sites = "sites/*{{ending}}"
id = "id"

[inputs]
numeric = {json.dumps(NUMERIC)}
{{more}}
[inputs.categorical]
grade = {json.dumps(GRADES)}

[labels]
kind = "exact"
column = "label"
classes = {json.dumps(CLASSES)}
"""


def part_of(draw: np.random.Generator, first: int, rows: int) -> pyarrow.Table:
    """Return random rows whose class depends on their numbers."""
    x = draw.normal(size=(len(NUMERIC), rows)).round(4)
    label = (x[0] > 0).astype(int) + 2 * (x[1] + 0.3 * x[2] > 0)
    columns = dict(zip(NUMERIC, x, strict=True))
    words = {"grade": np.array(GRADES)[draw.integers(3, size=rows)], "label": np.array(CLASSES)[label]}
    return pyarrow.table({"id": [f"row-{i}" for i in range(first, first + rows)], **columns, **words})


def write(folder: Path, rows: int) -> None:
    """Write the same rows as CSV and as Parquet, half of them at each of two sites."""
    for ending, more in ((".csv", ""), (".parquet", "lazy = true\n")):
        home = folder / ending[1:]
        (home / "sites").mkdir(parents=True)
        (home / "federation.toml").write_text(DECLARATION.format(ending=ending, more=more))
    for site, name in enumerate(("north", "south")):
        draw, schema = np.random.default_rng(site), part_of(np.random.default_rng(0), 0, 1).schema
        with (
            csv.CSVWriter(folder / "csv" / "sites" / f"{name}.csv", schema) as text,
            parquet.ParquetWriter(folder / "parquet" / "sites" / f"{name}.parquet", schema) as groups,
        ):
            for first in range(0, rows // 2, PART):
                part = part_of(draw, first, min(PART, rows // 2 - first))
                text.write_table(part)
                groups.write_table(part, row_group_size=100_000)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--only", choices=("inspect", "run", "lazy"), action="append")
    chosen = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, chosen.rows)
        imperfed = [sys.executable, "-m", "imperfed"]
        short = ["--rounds", "2", "-s", "local.steps=100", "--out", str(folder / "out")]
        commands = {
            "inspect": [*imperfed, "inspect", str(folder / "csv")],
            "run": [*imperfed, "run", "fedavg", "--data", str(folder / "csv"), *short],
            "lazy": [*imperfed, "run", "fedavg", "--data", str(folder / "parquet"), *short],
        }
        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        sizes = {kind: sum(path.stat().st_size for path in (folder / kind / "sites").iterdir()) for kind in KINDS}
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for what in chosen.only or commands:
            peak, _ = measure(commands[what], env=environment)
            known[what] = {"rows": chosen.rows, "files GB": sizes[KINDS[what == "lazy"]] / 1e9}
            known[what] |= {"anonymous GB": peak.anonymous / 1e9, "with mapped files GB": peak.with_files / 1e9}
            known[what]["seconds"] = peak.seconds
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
            print(
                f"{what:8} {chosen.rows:,} rows: peak {peak.anonymous / 1e9:.2f} GB anonymous, "
                f"{peak.anonymous / chosen.rows:.0f} bytes per row; {peak.with_files / 1e9:.2f} GB with mapped files; "
                f"{peak.seconds:.0f} s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
