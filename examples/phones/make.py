"""Phones that know one activity each and nothing about the others, from WISDM (accelerometers of 36 people).

`python examples/phones/make.py` writes one Parquet file with a column `phone`, test rows of people who own none of the
phones, and federation.toml. A phone holds the windows that one person recorded during one activity; it has no example
of any other. Windows with missing values are left out.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from imperfed.data.stored_files import data_folder

TESTED = 6  # people
DECLARATION = """\
name = "phones"
sites = "phones.parquet"
site_column = "phone"
id = "id"
test = "test.parquet"

[inputs]
numeric = {numeric}

[labels]
kind = "positive"
classes = {classes}
column = "activity"
"""


def main() -> None:
    """Write the federation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("federations/phones"))
    parser.add_argument("--rows", type=int, default=12, help="largest number of windows per phone")
    options = parser.parse_args()
    source = data_folder() / "wisdm" / "wisdm_transformed.npz"
    if not source.exists():
        raise SystemExit(f"{source}: not there; set IMPERFED_DATA to the folder that holds the data (docs/datasets.md)")
    data = dict(np.load(source))
    x, y, user, classes = data["x"], data["y"], data["user"], [str(name) for name in data["class_names"]]
    whole = ~np.isnan(x).any(1)
    tested = user > user.max() - TESTED
    phones = [(who, what) for who in np.unique(user[~tested]) for what in range(len(classes))]
    rows = [np.flatnonzero(whole & (user == who) & (y == what))[: options.rows] for who, what in phones]
    names = [f"{who:02}-{classes[what].lower()}" for who, what in phones]
    options.out.mkdir(parents=True, exist_ok=True)
    train = np.concatenate(rows)
    phone = np.repeat(names, [len(part) for part in rows])
    features = [str(name) for name in data["feature_names"]]
    write(options.out / "phones.parquet", {"id": train, "phone": phone}, features, x[train], y[train], classes)
    test = np.flatnonzero(whole & tested)
    write(options.out / "test.parquet", {"id": test}, features, x[test], y[test], classes)
    (options.out / "federation.toml").write_text(DECLARATION.format(numeric=features, classes=classes))
    print(f"wrote {options.out}: {len(np.unique(phone))} phones of one activity each, {len(train)} windows")
    print(f"next: imperfed inspect {options.out}")


def write(path: Path, first: dict, features: list[str], x: np.ndarray, y: np.ndarray, classes: list[str]) -> None:
    """Write one Parquet file: names, measurements, activity."""
    measured = {name: x[:, column].astype(np.float32) for column, name in enumerate(features)}
    named = {name: np.char.mod("%s", values) for name, values in first.items()}
    parquet.write_table(pa.table({**named, **measured, "activity": [classes[label] for label in y]}), path)


if __name__ == "__main__":
    main()
