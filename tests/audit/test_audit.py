"""`imperfed audit` and `imperfed.audit`: what was flipped is found, said and written, wherever the rows come from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from pyarrow import parquet

import imperfed
from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from tests.support.mislabelled import ROWS, SITES, WRONG, birds, in_tables
from tests.support.small_files import annotated, words
from tests.support.terminal import done
from tests.support.terminal import imperfed as typed

COLUMNS = ["id", "given", "suggested", "probability", "suspicion", "decision", "reason"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_tables(tmp_path_factory.mktemp("files") / "birds")


@pytest.fixture(scope="module")
def audited(folder: Path) -> imperfed.AuditResult:
    return imperfed.audit(folder, folder.parent / "audit")


def frame() -> pandas.DataFrame:
    parts = [pandas.DataFrame(birds(site)).assign(where=site) for site in SITES]
    table = pandas.concat(parts, ignore_index=True)
    return table.set_index(pandas.Index([f"row {i}" for i in range(len(table))]))


def test_it_finds_the_flipped_labels(audited: imperfed.AuditResult) -> None:
    north = audited.labels("north").to_pylist()
    assert [row["decision"] == "change" for row in north] == [i in WRONG["north"] for i in range(ROWS)]
    assert all(row["suggested"] == true for row, true in zip(north, birds("north")["true"], strict=True))
    assert {row["decision"] for row in audited.labels("south").to_pylist()} == {"keep"}
    figures = audited.summary.truth
    assert figures is not None
    assert figures.suspects.precision == figures.suspects.recall == figures.suspects.average_precision == 1
    assert figures.suspects.wrong == len(WRONG["north"]) / (2 * ROWS)


def test_the_folder_holds_labels_figures_and_page(audited: imperfed.AuditResult) -> None:
    table = parquet.read_table(audited.folder / "labels" / "north.parquet")
    assert table.column_names == COLUMNS
    assert table["id"].to_pylist() == birds("north")["ring"]
    document = json.loads((audited.folder / "audit.json").read_text())
    assert [site["suspects"] for site in document["sites"]] == [len(WRONG["north"]), 0]
    worst = document["sites"][0]["worst"]
    assert {row["id"] for row in worst} == {birds("north")["ring"][i] for i in WRONG["north"]}
    assert [row["suspicion"] for row in worst] == sorted((row["suspicion"] for row in worst), reverse=True)
    page = audited.report.read_text()
    assert all(row["id"] in page for row in worst)
    assert "http" not in page.replace("http://www.w3.org", "")


def test_it_says_what_is_mixed_up_and_whether_a_repair_helps(audited: imperfed.AuditResult) -> None:
    said = str(audited)
    assert "north: 20" in said
    assert "of its finch rows" in said
    assert "finch taken for robin" in said
    assert f"A repair would change {len(WRONG['north'])} labels at 1 of 2 sites" in said
    assert "no trusted rows" in said
    assert "south: less than 3 % noise estimated" in said


def test_command_and_call_find_the_same(folder: Path, audited: imperfed.AuditResult, tmp_path: Path) -> None:
    said = typed("audit", folder, "--out", tmp_path / "out", "--json")
    assert said.code == 0
    assert said.out == (audited.folder / "audit.json").read_text() + "\n"
    assert "A repair would change" in said.err
    for site in SITES:
        name = f"labels/{site}.parquet"
        assert parquet.read_table(tmp_path / "out" / name) == parquet.read_table(audited.folder / name)


def test_rows_in_memory_keep_their_index(audited: imperfed.AuditResult, tmp_path: Path) -> None:
    table = frame()
    result = imperfed.audit(table, tmp_path / "out", label="bird", site="where", id="ring", truth="true")
    assert repr(result).startswith("<AuditResult data: ")
    assert f"of {len(table):,} labels wrong, estimated; {result.folder}>" in repr(result)
    labels = result.labels().to_pandas().set_index("index")
    joined = table.join(labels)
    assert (joined["given"] == joined["bird"]).all()
    assert (joined["suggested"] == joined["true"]).all()
    assert labels["suspicion"].tolist() == audited.labels()["suspicion"].to_pylist()


def test_repaired_labels_have_the_index_of_the_frame(audited: imperfed.AuditResult, tmp_path: Path) -> None:
    table = frame()
    result = imperfed.audit(table, tmp_path / "out", label="bird", site="where", id="ring", truth="true")
    labels = result.repaired().to_pandas().set_index("index")
    assert list(labels) == ["site", "id", "given", "label"]
    joined = table.join(labels)
    assert (joined["given"] == joined["bird"]).all()
    assert (joined["label"] == joined["true"]).all()
    assert (joined["label"] != joined["bird"]).sum() == result.summary.changes > 0
    own = audited.repaired(SITES[0])
    assert own.column_names == ["id", "given", "label"]
    assert own["label"].to_pylist() == labels[labels["site"] == SITES[0]]["label"].tolist()


def test_labels_stay_as_given_where_an_audit_advises_against_a_repair(tmp_path: Path) -> None:
    result = imperfed.audit(in_tables(tmp_path / "birds", spread=40), tmp_path / "out")
    repaired, judged = result.repaired(), result.labels()
    assert repaired["label"] == repaired["given"]
    assert judged["suggested"] != judged["given"]


def test_simulated_noise(tmp_path: Path) -> None:
    table, file = frame(), tmp_path / "birds.npz"
    y = table["true"].astype("category").cat.codes.to_numpy()
    np.savez(file, x=table[["beak", "wing", "tail"]].to_numpy(), y=y)
    noise = {"noise": "uniform", "noisy_sites": 1.0, "noise_floor": 0.4}
    result = imperfed.audit(file, tmp_path / "out", sites=2, partition="iid", **noise)
    assert result.summary.truth is not None
    assert result.summary.truth.suspects.average_precision > 0.9


def test_trusted_rows_are_used(tmp_path: Path) -> None:
    trusted = pandas.DataFrame(birds("south")).drop(columns="true")
    settings = {"label": "bird", "site": "where", "id": "ring", "truth": "true", "trusted": trusted}
    result = imperfed.audit(frame(), tmp_path / "one", **settings)
    assert result.summary.clean_rows == ROWS
    assert not result.summary.cautions
    without = imperfed.audit(frame(), tmp_path / "two", clean_rows="ignore", **settings)
    assert without.summary.clean_rows == 0
    assert without.summary.cautions


def test_pictures_of_suspects_are_on_the_page(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(80) % 2
    x = 0.3 * torch.rand(80, 1, 8, 8, generator=draw)
    x[y == 0, :, :, :4] += 0.6
    x[y == 1, :, :4, :] += 0.6
    given = y.clone()
    given[::10] = 1 - given[::10]
    names = tuple(map(str, range(80)))
    federation = Federation("bars", x, Exact(given, 2), (0, 40, 80), ("a", "b"), ("left", "top"), names, x[:0])
    result = imperfed.audit(federation, tmp_path / "out")
    assert {row.id for site in result.summary.sites for row in site.worst} == {str(i) for i in range(0, 80, 10)}
    assert result.report.read_text().count('src="data:image/webp;base64,') == 8


def test_features_that_say_nothing_are_not_trusted(tmp_path: Path) -> None:
    folder = in_tables(tmp_path / "birds", spread=40)
    result = imperfed.audit(folder, tmp_path / "out")
    assert not result.summary.trusted
    assert result.summary.advice.startswith("Do not repair")
    assert "the classes overlap" in str(result)
    trusted = pandas.DataFrame(birds("south")).drop(columns="true").head(30)  # too few to help
    table = frame().assign(beak=0.0, wing=0.0, tail=np.random.default_rng(0).normal(size=2 * ROWS))
    again = imperfed.audit(
        table, tmp_path / "two", label="bird", site="where", id="ring", truth="true", trusted=trusted
    )
    assert again.summary.advice.startswith("Do not repair")


def test_small_sites_are_named(tmp_path: Path) -> None:
    table = frame()
    table.iloc[:4, table.columns.get_loc("where")] = "tiny"
    result = imperfed.audit(table, tmp_path / "out", label="bird", site="where", id="ring", truth="true")
    (caution,) = [one for one in result.summary.cautions if "tiny" in one]
    assert caution.startswith("tiny: fewer than 10 rows, so that what is said of it comes")


def test_files_without_a_declaration_are_guessed_and_left_alone(tmp_path: Path) -> None:
    folder = in_tables(tmp_path / "birds")
    (folder / "federation.toml").unlink()
    said = done("audit", folder, "--out", tmp_path / "out")
    assert "guessed: " in said.out
    assert not (folder / "federation.toml").exists()


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda f: imperfed.audit(f, rounds=3), ["rounds.rounds = 3", "trains no model"]),
        (lambda f: imperfed.audit(f, repair="fb-nll"), ["run.repair", "trains no model"]),
        (lambda f: imperfed.audit(f, features="hogg"), ["features 'hogg'", "Did you mean 'hog'"]),
        (lambda f: imperfed.audit(f, features="hog"), ["'hog' need images"]),
        (lambda f: imperfed.audit(f, features=lambda x: x), ["features: expected a name", "a module of its own"]),
        (lambda f: imperfed.audit(f, noise="uniform"), ["labels.noise", "fixed by its files"]),
        (lambda f: imperfed.audit(f, f), ["already exists, and nothing is overwritten"]),
        (lambda f: imperfed.audit(f / "sites" / "none.csv"), ["no such file or folder"]),
        (lambda f: imperfed.audit("no-such-data"), ["dataset 'no-such-data'"]),
        (lambda f: imperfed.audit(7), ["cannot read a value of type int"]),
        (lambda f: imperfed.audit(frame(), label="bird"), ["site=...: missing"]),
        (lambda f: imperfed.audit(frame(), label="birdd", site="where"), ["birdd"]),
        (lambda f: imperfed.audit(f).labels("west"), ["unknown site 'west'"]),
    ],
)
def test_wrong_calls(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call, parts) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, DataError)) as refused:
        call(folder)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize("make", [words, annotated])
def test_labels_that_cannot_be_judged(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    said = typed("audit", make(tmp_path / "files"), "--out", tmp_path / "out")
    assert said.code == 2
    assert "an audit judges" in said.err
    assert not (tmp_path / "out").exists()
