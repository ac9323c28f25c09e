"""Data in memory: every form is read by the code that reads files, and trains to the same models."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch
from torch.utils.data import TensorDataset

import imperfed
from imperfed.api.handed_over import column_of
from imperfed.core.errors import DataError
from imperfed.results.folder import RunFolder
from tests.support.terminal import imperfed as terminal

pytestmark = pytest.mark.usefixtures("no_page")

FEW = {"rounds": 2, "steps": 5, "workers": 1}
TOLD = {"label": "breed", "site": "clinic", "truth": "really"}


def models(result: imperfed.RunResult) -> dict[str, str]:
    """Return digests of the models' files: pytest compares different bytes for minutes."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in (result.folder / "models").iterdir()}


def train(data: Any, out: Path, method: str = "pfedpll", **keywords: Any) -> imperfed.RunResult:
    return imperfed.run(method, data=data, out=out, **FEW, **keywords)


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_same_rows_as_csv_and_as_frame_train_to_bit_equal_models(frame: pandas.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "clinics").mkdir()
    frame.rename(columns={"breed": "label"}).to_csv(tmp_path / "clinics" / "all.csv", index=False)
    imperfed.inspect(tmp_path / "clinics")
    from_file = train(tmp_path / "clinics", tmp_path)
    in_memory = train(frame, tmp_path, **TOLD)
    assert {"north.safetensors", "south.safetensors", "scale.safetensors"} <= models(from_file).keys()
    assert models(in_memory) == models(from_file)
    assert in_memory.summary.personal == from_file.summary.personal
    assert in_memory.summary.personal.n > 0


def test_every_library_of_tables_gives_the_same_models(frame: pandas.DataFrame, tmp_path: Path) -> None:
    expected = models(train(frame, tmp_path, **TOLD))
    arrow = pyarrow.Table.from_pandas(frame, preserve_index=False)
    named = polars.from_arrow(arrow)
    assert isinstance(named, polars.DataFrame)
    coded = named.with_columns(polars.col("colour", "clinic", "breed", "really").cast(polars.Categorical))
    dense = frame.astype({"colour": "category", "weight": "float32"})
    sparse = frame.astype({"weight": pandas.SparseDtype("float64", 0.0)})
    for table in (arrow, named, coded, dense, sparse):
        assert models(train(table, tmp_path, **TOLD)) == expected


def test_intervals_are_categories(frame: pandas.DataFrame, tmp_path: Path) -> None:
    cut = frame.assign(age=pandas.cut(frame["age"], 3))
    assert train(cut, tmp_path, **TOLD).summary.input == (1 + 3 + 2,)  # weight, three intervals of age, two colours


def test_text_may_be_bytes(frame: pandas.DataFrame, tmp_path: Path) -> None:
    """As NumPy and Parquet files store it."""
    raw = frame.assign(**{name: frame[name].str.encode("utf-8") for name in ("breed", "colour", "clinic", "really")})
    assert models(train(raw, tmp_path, **TOLD)) == models(train(frame, tmp_path, **TOLD))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_seconds(unit: str, frame: pandas.DataFrame, tmp_path: Path) -> None:
    lasting = frame.assign(age=pandas.to_timedelta(range(80), unit="s").as_unit(unit))
    assert models(train(lasting, tmp_path, **TOLD)) == models(train(frame.assign(age=range(80)), tmp_path, **TOLD))


def test_classes_may_be_the_unique_values_of_a_column(frame: pandas.DataFrame, tmp_path: Path) -> None:
    for classes in (frame["really"].unique(), frame["really"].astype("category").cat.categories):
        assert sorted(train(frame, tmp_path, classes=classes, **TOLD).summary.classes) == ["cat", "dog", "fox"]


@pytest.mark.parametrize("bins", [3, [-np.inf, 0.5, np.inf]])
def test_numbers_cut_into_classes_are_classes(bins: Any, frame: pandas.DataFrame, tmp_path: Path) -> None:
    """Their names hold a comma, which separates nothing."""
    cut = pandas.cut(frame["age"], bins)
    for label in (cut, cut.astype(str)):
        summary = train(frame.assign(age=label), tmp_path, "fedavg", label="age", site="clinic").summary
        assert summary.facts.labels == "exact"
        assert set(summary.classes) == set(cut.astype(str))


def test_the_groups_of_a_table_are_sites(frame: pandas.DataFrame, tmp_path: Path) -> None:
    """The column by which they are grouped is no input, and their keys may be tuples."""
    told = {"label": "breed", "truth": "really"}
    table = models(train(frame, tmp_path, **TOLD))
    for groups in (
        frame.groupby("clinic"),
        frame.groupby(["clinic"]),
        polars.from_pandas(frame).group_by("clinic", maintain_order=True),
    ):
        result = train(dict(sorted(groups, key=lambda group: group[0])), tmp_path, **told)
        assert result.sites == ("north", "south")
        assert models(result) == table


def test_one_table_per_site_is_one_table_with_a_column_of_sites(frame: pandas.DataFrame, tmp_path: Path) -> None:
    parts = {str(name): part.drop(columns="clinic") for name, part in frame.groupby("clinic")}
    result = train(parts, tmp_path, label="breed", truth="really")
    assert models(result) == models(train(frame, tmp_path, **TOLD))
    assert result.sites == ("north", "south")


@pytest.mark.parametrize("form", [set, frozenset, tuple, list])
def test_candidates_may_be_collections(form: Any, frame: pandas.DataFrame, tmp_path: Path) -> None:
    sets = frame.assign(breed=[form(cell.split(";")) for cell in frame["breed"]])
    assert models(train(sets, tmp_path, **TOLD)) == models(train(frame, tmp_path, **TOLD))


def test_a_single_candidate_may_be_a_name_beside_lists(frame: pandas.DataFrame, tmp_path: Path) -> None:
    sets = [cell.split(";") for cell in frame["breed"]]
    mixed = frame.assign(breed=[names if len(names) > 1 else names[0] for names in sets])
    assert {type(cell) for cell in mixed["breed"]} == {list, str}
    assert models(train(mixed, tmp_path, **TOLD)) == models(train(frame, tmp_path, **TOLD))


@pytest.mark.parametrize("blank", [None, pandas.NA, pandas.NaT, float("nan")])
def test_a_blank_among_values_of_different_types_is_no_word(blank: Any) -> None:
    assert column_of([1, "a", blank]).to_pylist() == ["1", "a", None]
    assert column_of([[1, "a"], "b", blank]).to_pylist() == [["1", "a"], ["b"], None]


def test_the_inputs_can_be_chosen(frame: pandas.DataFrame, tmp_path: Path) -> None:
    train(frame, tmp_path, inputs=["colour", "age"], **TOLD)
    result = train(frame, tmp_path, inputs={"numeric": ["age"], "categorical": {"colour": ["blue", "red"]}}, **TOLD)
    assert result.summary.input == (3,)
    assert 'numeric = [\n    "age",\n]' in (result.folder / "federation.toml").read_text()


def test_marks_may_be_missing(frame: pandas.DataFrame, tmp_path: Path) -> None:
    marks = {name: (frame["really"] == name).astype(float) for name in ("cat", "dog")}
    marks["cat"][frame["clinic"] == "north"] = np.nan
    table = frame[["age", "weight", "clinic"]].assign(**marks)
    result = train(table, tmp_path, "fedpsl", label=["cat", "dog"], site="clinic", public=0.0)
    assert result.summary.facts.labels == "annotated"
    assert result.summary.by_class[0].annotated_at == ("south",)


def test_test_and_trusted_rows_are_tables_too(frame: pandas.DataFrame, tmp_path: Path) -> None:
    given = frame.drop(columns="really")
    clean = frame.drop(columns="breed").rename(columns={"really": "breed"})
    result = train(given, tmp_path, label="breed", site="clinic", test=clean, trusted=clean[:5], public=clean[:7])
    facts = result.summary.facts
    assert (facts.common_test_rows, facts.trusted_rows, facts.public_rows) == (80, 5, 7)


# -- arrays, datasets, federations -------------------------------------------------------------------------------------


def sites_of_arrays(frame: pandas.DataFrame) -> dict[str, Any]:
    x, y = frame[["age", "weight"]].to_numpy(np.float32, copy=True), pandas.factorize(frame["really"], sort=True)[0]
    return {"a": (x[:40], y[:40]), "b": (x[40:], y[40:])}


def test_arrays_tensors_and_datasets_are_the_same_rows(frame: pandas.DataFrame, tmp_path: Path) -> None:
    arrays = sites_of_arrays(frame)
    result = train(arrays, tmp_path, "fedavg")
    tensors = {site: (torch.from_numpy(x), torch.from_numpy(y)) for site, (x, y) in arrays.items()}
    assert models(train(tensors, tmp_path, "fedavg")) == models(result)
    datasets = {site: TensorDataset(*pair) for site, pair in tensors.items()}
    assert models(train(datasets, tmp_path, "fedavg")) == models(result)
    assert result.summary.classes == ("0", "1", "2")
    assert result.predict(arrays["a"][0]).shape == (40, 3)


def test_arrays_may_have_candidate_sets_matrices_and_truth(frame: pandas.DataFrame, tmp_path: Path) -> None:
    arrays, sets = sites_of_arrays(frame), [cell.split(";") for cell in frame["breed"]]
    matrix = np.array([[name in cell for name in ("cat", "dog", "fox")] for cell in sets])
    parts = {"a": slice(40), "b": slice(40, 80)}
    listed = {site: (arrays[site][0], [set(cell) for cell in sets[part]]) for site, part in parts.items()}
    marked = {site: (arrays[site][0], matrix[part], arrays[site][1]) for site, part in parts.items()}
    assert train(listed, tmp_path).summary.classes == ("cat", "dog", "fox")
    result = train(marked, tmp_path, classes=["cat", "dog", "fox"])
    assert result.summary.facts.labels == "candidates"
    assert result.summary.personal.n > 0


def test_a_federation_runs_as_it_is(tmp_path: Path) -> None:
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    federation = imperfed.Federation(
        "mine", x, imperfed.Exact(y, 3), (0, 10, 30), ("a", "b"), ("r", "g", "b"), tuple(map(str, range(30))), x[:0]
    )
    result = train(federation, tmp_path, "fedavg")
    assert (result.sites, result.summary.data) == (("a", "b"), "mine")
    assert result.predict(x, "a").shape == (30, 3)


# -- later -------------------------------------------------------------------------------------------------------------


def test_a_run_continues_with_rows_handed_over_again(frame: pandas.DataFrame, tmp_path: Path) -> None:
    whole = imperfed.run("pfedpll", frame, tmp_path, **TOLD, **FEW | {"rounds": 4, "checkpoint_every": 2})
    expected = models(whole)
    RunFolder(whole.folder).checkpoint.unlink()
    (whole.folder / "summary.json").unlink()
    for command in ("resume", "evaluate"):
        said = terminal(command, whole.folder)
        assert (said.code, "imperfed.resume(folder, data=...)" in said.err) == (2, True)
    assert models(imperfed.resume(whole.folder, data=frame)) == expected
    with pytest.raises(DataError, match="the data have changed"):
        imperfed.resume(whole.folder, data=frame[:60])


def test_methods_are_compared_on_rows_in_memory(frame: pandas.DataFrame, tmp_path: Path) -> None:
    comparison = imperfed.compare(["pfedpll", "cc"], frame, seeds=[0, 1], out=tmp_path, alone=False, **TOLD, **FEW)
    assert comparison.table["method"].to_pylist() == ["pfedpll", "cc"]
    single = imperfed.run("pfedpll", frame, tmp_path, seed=1, data_seed=1, **TOLD, **FEW)
    assert comparison.lines[0].values[1] == single.summary.personal.mean
