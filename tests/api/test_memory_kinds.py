"""Every kind of labels, and all else that files know, in memory: the same rows as files train to the same models."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import tomli_w
import torch
from torch.utils.data import TensorDataset

import imperfed
from imperfed.core.errors import DataError, UsageError
from imperfed.results.folder import RunFolder
from tests.support.terminal import products

pytestmark = pytest.mark.usefixtures("no_page")

FEW = {"rounds": 2, "steps": 3, "workers": 1}
CLASSES = ["cat", "dog", "fox"]


@dataclass(frozen=True)
class Case:
    """A method, and how the table of clinics is described to it."""

    method: str
    described: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    """Further tables, each the first rows of the table."""


CASES = {
    "exact": Case("fedavg", {"label": "really"}),
    "candidates": Case("pfedpll", {"label": "breed", "truth": "really"}),
    "candidates in columns": Case("pfedpll", {"label": CLASSES, "kind": "candidates"}),
    "annotated": Case("fedpsl", {"label": ["sick", "tame"]}, {"public": 0.0}),
    "uncertain": Case(
        "fedpsl",
        {"label": ["sick", "old"], "uncertain": {"values": [-1], "read_as": "unknown"}, "missing": ["NA"]},
        {"public": 0.0},
    ),
    "positive": Case("fedaws", {"label": "home", "kind": "positive", "classes": ["n", "s"]}),
    "positives": Case("positive-softmax", {"label": "breed", "kind": "positives"}),
    "attribute": Case(
        "fedavg",
        {"label": "really", "attribute": {"column": "race", "truth": "true race"}},
        {"fairness.target": "black", "fairness.unprivileged": "cat"},
    ),
    "group": Case("fedavg", {"label": "really", "group": "person", "id": "row"}),
    "all parts": Case("fedavg", {"label": "really"}, {}, ("test", "public", "trusted")),
}


@pytest.fixture
def table(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Animals of two clinics with a column for every role."""
    draw = np.random.default_rng(1)
    marks = {name: [int(name in cell.split(";")) for cell in frame["breed"]] for name in CLASSES}
    race = draw.choice(["black", "white"], len(frame))
    return frame.reset_index(drop=True).assign(
        **marks,
        sick=np.where(draw.random(len(frame)) < 0.4, np.nan, draw.integers(0, 2, len(frame))),
        tame=np.where(frame["clinic"] == "north", np.nan, draw.integers(0, 2, len(frame))),
        old=[str(value) for value in draw.choice(["1", "0", "-1", "NA"], len(frame))],
        home=[clinic[0] for clinic in frame["clinic"]],
        race=["black|white" if k % 3 == 0 else name for k, name in enumerate(race)],
        **{"true race": race},
        person=[f"p{k // 3}" for k in range(len(frame))],
        row=[f"r{k}" for k in range(len(frame))],
    )


def described(case: Case) -> dict[str, Any]:
    return {"site": "clinic", "inputs": ["age", "weight", "colour"], **case.described}


def in_memory(case: Case, table: Any, out: Path) -> imperfed.RunResult:
    parts = {part: table[:9] if part != "public" else table[:12] for part in case.parts}
    return imperfed.run(case.method, table, out, **described(case), **parts, **case.settings, **FEW)


def written(case: Case, table: pandas.DataFrame, declaration: str, folder: Path, suffix: str) -> Path:
    """The same rows as files, with the declaration of a run on the rows in memory."""
    folder.mkdir()
    parts = {"sites": table, **{part: table[:9] if part != "public" else table[:12] for part in case.parts}}
    for name, rows in parts.items():
        if suffix == ".csv":
            rows.to_csv(folder / f"{name}.csv", index=False)
        else:
            rows.to_parquet(folder / f"{name}.parquet", index=False)
    entries = tomllib.loads(declaration) | {name: f"{name}{suffix}" for name in parts}
    (folder / "federation.toml").write_text(tomli_w.dumps(entries))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_files_and_tables_give_the_same_results(name: str, table: pandas.DataFrame, tmp_path: Path) -> None:
    case = CASES[name]
    result = in_memory(case, table, tmp_path / "runs")
    ours, declaration = products(result.folder), (result.folder / "federation.toml").read_text()
    for suffix in (".csv", ".parquet"):
        folder = written(case, table, declaration, tmp_path / suffix[1:], suffix)
        theirs = products(imperfed.run(case.method, folder, tmp_path / "runs", **case.settings, **FEW).folder)
        assert {key for key in ours if ours[key] != theirs[key]} <= {"split.parquet"}  # it holds the frame's index
    arrow = pyarrow.Table.from_pandas(table, preserve_index=False)
    for other in (arrow, polars.from_arrow(arrow)):
        theirs = products(in_memory(case, other, tmp_path / "runs").folder)
        assert {key for key in ours if ours[key] != theirs[key]} <= {"split.parquet"}


def test_roles_are_what_they_are_for_files(table: pandas.DataFrame, tmp_path: Path) -> None:
    fair = in_memory(CASES["attribute"], table, tmp_path).summary
    assert fair.input == (6,)  # two numbers, two colours, two groups
    assert fair.fairness is not None
    assert in_memory(CASES["uncertain"], table, tmp_path).summary.facts.labels == "annotated"
    parts = in_memory(CASES["all parts"], table, tmp_path).summary.facts
    assert (parts.common_test_rows, parts.trusted_rows, parts.public_rows) == (9, 9, 12)
    grouped = in_memory(CASES["group"], table, tmp_path)
    split = RunFolder(grouped.folder).split()
    trained = {table["person"][int(row[1:])] for rows in split.values() for row in rows}
    tested = {table["person"][k] for k in range(len(table))} - trained
    assert tested
    assert all(f"r{k}" in {*split["north"], *split["south"]} for k in range(80) if table["person"][k] in trained)


# -- images ------------------------------------------------------------------------------------------------------------


def images(dtype: Any, *shape: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 40)
    x = draw.integers(0, 100, (40, *shape)) + 100 * y.reshape(-1, *[1] * len(shape))
    x = x.astype(np.uint8) if dtype is np.uint8 else (x / 255).astype(np.float32)
    return {"a": (x[:18], y[:18]), "b": (x[18:], y[18:])}


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (8, 8)])
def test_images_of_bytes_and_of_numbers_are_the_same(shape: tuple[int, ...], tmp_path: Path) -> None:
    channels_first = shape if len(shape) == 3 else (1, *shape)
    of_numbers = {site: (x.reshape(-1, *channels_first), y) for site, (x, y) in images(np.float32, *shape).items()}
    result = imperfed.run("local-only", of_numbers, tmp_path, model="cnn", **FEW)
    assert result.summary.input == channels_first
    of_bytes, expected = images(np.uint8, *shape), products(result.folder)
    assert products(imperfed.run("local-only", of_bytes, tmp_path, model="cnn", **FEW).folder) == expected
    tensors = {site: TensorDataset(*map(torch.from_numpy, pair)) for site, pair in of_bytes.items()}
    assert products(imperfed.run("local-only", tensors, tmp_path, model="cnn", **FEW).folder) == expected
    assert torch.equal(result.predict(of_bytes["a"][0], "a"), result.predict(of_numbers["a"][0], "a"))


def test_tensors_of_half_precision_are_numbers_too(tmp_path: Path) -> None:
    """NumPy has no bfloat16."""
    x, y = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.arange(20) % 2
    result = imperfed.run("fedavg", {"a": (x, y), "b": (x, y)}, tmp_path, **FEW)
    expected = imperfed.run("fedavg", {"a": (x.float(), y), "b": (x.float(), y)}, tmp_path, **FEW)
    assert products(result.folder) == products(expected.folder)
    assert torch.equal(result.predict(x), expected.predict(x.float()))


def test_matrices_of_labels_may_have_blanks(tmp_path: Path) -> None:
    marks = np.array([[1, 0, np.nan], [0, np.nan, 1], [np.nan, 1, 0], [1, 1, 0]] * 10)
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    sites = {"a": (x[:20], marks[:20]), "b": (x[20:], marks[20:])}
    result = imperfed.run("fedpsl", sites, tmp_path, public=x[:8], classes=CLASSES, **FEW)
    assert result.summary.facts.labels == "annotated"
    assert result.summary.facts.public_rows == 8
    known = imperfed.inspect(sites, classes=CLASSES).census.sites[0].known
    assert known.unknown.tolist() == [5, 5, 5]


# -- federations -------------------------------------------------------------------------------------------------------


def federation(rows: int = 30) -> imperfed.Federation:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))
    labels = imperfed.Exact(torch.arange(rows) % 3, 3)
    ids = tuple(map(str, range(rows)))
    return imperfed.Federation("mine", x, labels, (0, 10, rows), ("a", "b"), ("r", "g", "b"), ids, x[:0])


@pytest.mark.parametrize("library", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_labels_of_arrays_may_be_tables(library: Callable[[dict[str, Any]], Any], tmp_path: Path) -> None:
    """One column holds a class per row; several hold marks, with or without blanks."""
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    marks = {"on": [1.0, 0.0, None, 1.0] * 5, "off": [0.0, 1.0] * 10}
    alike = [
        ({"y": y}, y),
        ({"y": np.array(["on", "off"])[y]}, np.array(["on", "off"])[y]),
        ({"on": y == 0, "off": y == 1}, np.stack([y == 0, y == 1], 1)),
        (marks, np.array([*marks.values()], float).T),
    ]
    for number, (table, plain) in enumerate(alike):
        runs = [
            imperfed.run("fedavg", {"all": (x, labels)}, tmp_path / str(number), **FEW, model="linear")
            for labels in (library(table), plain)
        ]
        assert runs[0].summary.facts == runs[1].summary.facts
        assert runs[0].predict(x).equal(runs[1].predict(x))


def test_one_class_in_a_matrix_may_be_annotated(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20)[:, None] % 2
    told = imperfed.run("fedpsl", {"all": (x, y)}, tmp_path / "told", kind="annotated", **FEW)
    seen = imperfed.run("fedpsl", {"all": (x, np.where(x[:, :1] > 1, np.nan, y))}, tmp_path / "seen", **FEW)
    assert told.summary.facts.labels == seen.summary.facts.labels == "annotated"


def test_a_mark_in_doubt_may_be_declared_to_be_missing(table: pandas.DataFrame, tmp_path: Path) -> None:
    """Minus one looks uncertain; whoever says that it means a blank has named it in one list, not in two."""
    marked = table.assign(a=[1, 0, -1, 1] * (len(table) // 4), b=[0, 1] * (len(table) // 2))
    described = {"label": ["a", "b"], "inputs": ["age"], "site": "clinic", **FEW}
    for missing in (["-1"], [-1], (-1.0,)):
        facts = imperfed.run("fedpsl", marked, tmp_path, missing=missing, test=0, **described).summary.facts
        assert sum(facts.annotated_rows[0]) == 3 * len(table) // 4
        assert sum(facts.annotated_rows[1]) == len(table)


def test_a_federation_is_handed_over_again_to_resume(tmp_path: Path) -> None:
    result = imperfed.run("local-only", federation(), tmp_path, **FEW | {"rounds": 4, "checkpoint_every": 2})
    expected = products(result.folder)
    for name in ("checkpoints/last.safetensors", "summary.json"):
        (result.folder / name).unlink()
    with pytest.raises(UsageError, match="hand them over again"):
        imperfed.resume(result.folder)
    assert products(imperfed.resume(result.folder, data=federation()).folder) == expected


def test_sites_of_a_federation_are_files_and_need_names_that_files_can_have(tmp_path: Path) -> None:
    """Two sites of one name would write over each other's models, and `../b` outside of the run's folder."""
    with pytest.raises(DataError, match=r"mine, sites: found '../b', which cannot be the name of a file"):
        imperfed.run("local-only", replace(federation(), sites=("a", "../b")), tmp_path, **FEW)
    with pytest.raises(DataError, match="mine: two sites are called 'a'; rename one of them"):
        imperfed.run("local-only", replace(federation(), sites=("a", "a")), tmp_path, **FEW)
    assert not [*tmp_path.iterdir()]


def test_inputs_of_a_federation_are_those_that_networks_take(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mine: the inputs are torch\.float64; networks take torch\.float32"):
        imperfed.run("fedavg", replace(federation(), x=federation().x.double()), tmp_path, **FEW)
