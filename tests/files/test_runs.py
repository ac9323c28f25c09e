"""Runs on a federation of files, from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, SensitiveColumn, called, read_declaration
from imperfed.data.files.reading import read_sites
from imperfed.data.labelling import LabelConfig
from imperfed.data.own_files import federate_files
from imperfed.data.split import SplitConfig
from tests.support import small_files as small
from tests.support.terminal import done, imperfed, records, summary
from tests.support.written_files import declare, write_table

QUICK = ("--rounds", "2", "--set", "steps=2", "--workers", "1")


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def many(folder: Path, kind: str = "exact", truth: str = "", **more: str) -> Path:
    """A federation with rows enough to keep some apart: 30 patients with 2 rows each at two sites."""
    draw = np.random.default_rng(3)
    for site in ("north", "south"):
        y = np.arange(60) % 3
        x = draw.normal(size=(60, 2)) + 4 * np.eye(3, 2)[y]
        given = [small.CLASSES[c] for c in y]
        columns = {
            "a": x[:, 0],
            "b": x[:, 1],
            "id": [f"{site}-{i}" for i in range(60)],
            "who": [i // 2 for i in range(60)],
        }
        write_table(folder / f"{site}.csv", columns | {"true": given, "y": given[:-6] + ["cat"] * 6})
    labels = LabelColumns(kind, small.CLASSES, "y", truth=truth)
    declared = Declaration("many", "*.csv", id="id", inputs=Inputs(("a", "b")), labels=labels, **more)  # type: ignore[arg-type]
    return declare(folder, declared)


def test_run_evaluate_and_resume(tmp_path: Path) -> None:
    folder = small.candidates(tmp_path / "animals")
    said = done("run", "pfedpll", "--data", folder, *QUICK, "--out", tmp_path / "runs")
    told = summary(said.folder)
    assert [site["site"] for site in told["sites"]] == ["north", "south"]
    assert told["data"] == "animals"
    assert told["facts"]["rows"] == [6, 6]
    assert parquet.read_table(said.folder / "labels/south.parquet")["id"].to_pylist() == [
        f"south {i}" for i in range(6)
    ]
    figures = done("evaluate", said.folder, "--json").out
    assert "north" in figures
    cut = shutil.copytree(said.folder, tmp_path / "cut")
    (cut / "summary.json").unlink()
    (cut / "checkpoints/last.safetensors").unlink()
    done("resume", cut)
    for model in ("global", "north", "south"):
        name = f"models/{model}.safetensors"
        assert (cut / name).read_bytes() == (said.folder / name).read_bytes()


def test_a_run_on_a_relative_path_can_be_used_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = many(tmp_path / "many")
    monkeypatch.chdir(folder)
    run = done("run", "fedavg", "--data", "../many", *QUICK, "--out", tmp_path / "runs").folder
    monkeypatch.chdir(tmp_path)
    done("evaluate", run)
    (run / "summary.json").unlink()
    done("resume", run)
    moved = folder.rename(tmp_path / "moved")
    assert imperfed("run", run / "config.toml", "--out", tmp_path / "again").code != 0
    done("run", run / "config.toml", "--data", moved, "--out", tmp_path / "again")


def test_files_that_changed_since_are_neither_measured_on_nor_trained_on(tmp_path: Path) -> None:
    folder = many(tmp_path / "many")
    run = done("run", "fedavg", "--data", folder, *QUICK, "--out", tmp_path / "runs").folder
    done("evaluate", run)
    (run / "summary.json").unlink()
    whole = (folder / "south.csv").read_text().splitlines()
    (folder / "south.csv").write_text("\n".join(whole[:-1]) + "\n")
    for verb in ("evaluate", "resume"):
        said = imperfed(verb, run)
        assert said.code == 3
        assert "other training rows at 1 of 2 sites (south: 48 rows then, 47 now)" in said.err


def test_compare_takes_the_file_itself(tmp_path: Path) -> None:
    folder = many(tmp_path / "many")
    data = folder / "federation.toml"
    said = done("compare", "fedavg,local-only", "--data", data, *QUICK, "--out", tmp_path / "runs")
    assert "local-only" in said.out


def test_nothing_to_compare_by(tmp_path: Path) -> None:
    said = imperfed("compare", "cc", "--data", many(tmp_path, "candidates"), "--out", tmp_path / "runs")
    assert said.code == 2
    assert "many hold no truth to measure on; declare test files or truth in" in said.err
    said = imperfed("compare", "fedavg", "--data", many(tmp_path), "--set", "test=0", "--out", tmp_path / "runs")
    assert (said.code, "set split.test above 0" in said.err) == (2, True)


@pytest.mark.parametrize(("data", "name"), [("digits", "digits"), ("a/mine.npz", "mine"), ("b/federation.toml", "b")])
def test_what_a_run_is_called_after(data: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(data) == name
    monkeypatch.chdir(tmp_path)
    assert called(".") == called("federation.toml") == tmp_path.name


def test_all_problems_end_a_run_before_anything_is_written(tmp_path: Path) -> None:
    folder = small.candidates(tmp_path / "animals")
    for site in ("north", "south"):
        path = folder / f"sites/{site}.csv"
        path.write_text(path.read_text().replace(",f,", ",x,", 1))
    said = imperfed("run", "cc", "--data", folder, "--out", tmp_path / "runs")
    assert said.code == 3
    assert said.err.startswith("error: animals: 2 problems; nothing was trained or written\n")
    assert "north.csv, line 2, column sex" in said.err
    assert "south.csv, line 2, column sex" in said.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("partition=iid", "split.partition = iid: the sites and their rows of animals are fixed by its files"),
        ("sites=3", "split.sites = 3"),
        ("beta=0.1", "split.partition = dirichlet beta=0.1: the sites and their rows of animals"),
        ("split.standardise=true", "split.standardise"),
        ("labels.candidates=flip", "labels.candidates = flip: the labels (candidates) of animals are fixed by"),
        ("labels.kind=exact", "labels.kind = exact"),
        ("attribute_flip=0.1", "labels.attribute_flip"),
        ("split.trusted=1.5", "trusted is a share"),
        ("data_seed=-1", "data_seed must not be negative"),
    ],
)
def test_settings_that_the_files_settle(setting: str, reason: str, tmp_path: Path) -> None:
    said = imperfed("run", "cc", "--data", small.candidates(tmp_path), "--set", setting, "--out", tmp_path / "runs")
    assert said.code == 2
    assert reason in said.err


def test_a_kind_of_labels_that_the_method_cannot_learn_from(tmp_path: Path) -> None:
    said = imperfed("run", "pfedpll", "--data", small.annotated(tmp_path), "--out", tmp_path / "runs")
    assert said.code == 2
    assert "masked-bce" in said.err


def test_a_folder_without_a_declaration(tmp_path: Path) -> None:
    said = imperfed("run", "cc", "--data", tmp_path)
    assert said.code == 2
    assert "federation.toml" in said.err


def test_rows_are_kept_apart_where_the_truth_is_known(tmp_path: Path) -> None:
    reading = read_sites(read_declaration(many(tmp_path, truth="true")))
    data = federate_files(reading, SplitConfig(test=0.25, public=0.2, trusted=0.1), LabelConfig(), 0)
    assert data.facts["trusted_rows"] == 12
    assert sum(data.facts["rows"]) + sum(data.facts["test_rows"]) + data.facts["public_rows"] == 108
    assert data.facts["rows_left_out"] == 0
    assert max(data.facts["noise_rates"]) > 0
    assert data.federation.x.mean(0).abs().max() < 1e-6
    assert set(data.federation.ids) < {f"{site}-{i}" for site in ("north", "south") for i in range(60)}
    again = federate_files(reading, SplitConfig(test=0.25, public=0.2, trusted=0.1), LabelConfig(), 1)
    assert again.federation.ids != data.federation.ids


def test_without_truth_labels_are_measured_by_and_never_called_true(tmp_path: Path) -> None:
    data = federate_files(read_sites(read_declaration(many(tmp_path / "exact"))), SplitConfig(), LabelConfig(), 0)
    assert data.oracle.truth is None
    assert "noise_rates" not in data.facts
    assert data.facts["test_rows"] == [10, 10]
    assert len(data.federation.public) == 4
    data = federate_files(
        read_sites(read_declaration(many(tmp_path / "sets", "candidates"))), SplitConfig(), LabelConfig(), 0
    )
    assert data.facts["test_rows"] == [0, 0]
    assert data.oracle.truth is None
    assert len(data.federation.x) == 120
    run = ("run", "cc", "--data", tmp_path / "sets", *QUICK, "--out", tmp_path / "runs")
    assert "so no model was measured" in imperfed(*run).out


def test_a_site_of_one_row_is_told_with_its_file_and_what_can_be_done(tmp_path: Path) -> None:
    folder = small.annotated(tmp_path / "own")
    rows = (folder / "all.csv").read_text().splitlines()
    (folder / "all.csv").write_text("\n".join(rows[:2] + rows[2::2]) + "\n")
    said = imperfed("run", "masked-bce", "--data", folder, "--out", tmp_path / "runs")
    assert said.code == 3
    assert "one row cannot serve" in said.err
    assert f"add rows to {folder / 'all.csv'}, remove the site, or declare a test file" in said.err


def test_rows_of_one_group_stay_together(tmp_path: Path) -> None:
    data = federate_files(read_sites(read_declaration(many(tmp_path, group="who"))), SplitConfig(), LabelConfig(), 0)
    trained = {name.split("-")[1] for name in data.federation.ids}
    assert all(str(int(row) ^ 1) in trained for row in trained)
    assert sum(data.facts["test_rows"]) + len(data.federation.public) == 24


def test_trusted_and_public_files(tmp_path: Path) -> None:
    write_table(tmp_path / "clean/t.csv", {"a": [1.0, 2.0], "b": [0.0, 1.0], "y": ["dog", "cat"]})
    write_table(tmp_path / "clean/p.csv", {"a": [1.0], "b": [0.0]})
    folder = many(tmp_path, trusted="clean/t.csv", public="clean/p.csv", test="clean/t.csv")
    data = federate_files(read_sites(read_declaration(folder)), SplitConfig(), LabelConfig(), 0)
    assert data.federation.trusted is not None
    assert data.federation.trusted.labels.values.tolist() == [1, 0]
    assert len(data.federation.public) == 1
    assert data.federation.sizes() == [60, 60]
    assert [y.tolist() for y in data.oracle.test_y] in ([[1, 0]] * 2, [[0, 1]] * 2)
    said = imperfed("run", "fedavg", "--data", folder, "--set", "split.trusted=0.1", "--out", tmp_path / "runs")
    assert (said.code, "has a trusted file already" in said.err) == (2, True)


def test_who_needs_rows_at_the_server_is_told_how_files_name_them(tmp_path: Path) -> None:
    folder = many(tmp_path / "many")
    run = ("run", "fedavg", "--data", folder, "--set", "repair=fb-nll", "--out", tmp_path / "runs")
    said = imperfed(*run)
    assert said.code == 2
    assert 'trusted = "trusted.csv" in federation.toml' in said.err
    said = imperfed(*run, "--set", "split.trusted=0.1")
    assert said.code == 2
    assert f'declare trusted = "trusted.csv" or truth in {folder / "federation.toml"}' in said.err


def test_positives_of_sparse_rows_train(tmp_path: Path) -> None:
    folder = small.words(tmp_path / "words")
    words = ("--model", "text", "--set", "model.widths=8,8")
    said = done("run", "positive-softmax", "--data", folder, *QUICK, *words, "--out", tmp_path / "runs")
    assert summary(said.folder)["metric"] == "p@1"


def people(folder: Path, sites: int, **test: list[str]) -> Path:
    """Sites of people whose colour is ambiguous, and one test file of eight people for all of them."""
    y, was = ["cat", "dog"] * 4, ["red"] * 3 + ["blue"] * 5
    columns = {"a": [float(i) for i in range(8)], "y": y, "colour": [sorted({name, "red"}) for name in was]}
    for k in range(sites):
        write_table(folder / f"sites/{k}.csv", columns | {"was": was})
    write_table(folder / "test.csv", columns | test)
    declared = Declaration(
        "people",
        "sites/*.csv",
        test="test.csv",
        inputs=Inputs(("a",)),
        labels=LabelColumns("exact", small.CLASSES, "y"),
        attribute=SensitiveColumn("colour", ("red", "blue"), truth="was"),
    )
    return declare(folder, declared)


def test_a_test_file_for_all_sites_counts_once_in_fairness(tmp_path: Path) -> None:
    data = people(tmp_path / "people", 6, was=["blue"] * 5 + ["red"] * 3)
    aim = ("--set", "fairness.target=blue", "--set", "fairness.unprivileged=cat", "--set", "split.public=0")
    said = done("run", "fedavg", "--data", data, *QUICK, *aim, "--out", tmp_path / "runs")
    fair = summary(said.folder)["fairness"]
    assert [fair["true"][group]["rows"] for group in ("target", "rest")] == [5, 3]
    assert [fair["candidate"][group]["rows"] for group in ("target", "rest")] == [5, 3]
    assert fair["candidate"]["spd"]["interval"] is None
    assert {r["n"] for r in records(said.folder) if r["metric"] == "fair/spd/true"} == {5}


def test_true_groups_that_a_test_file_does_not_name_are_unknown(tmp_path: Path) -> None:
    found = read_sites(read_declaration(people(tmp_path, 2)))
    assert federate_files(found.check(), SplitConfig(), LabelConfig(), 0).oracle.test_group == ()
