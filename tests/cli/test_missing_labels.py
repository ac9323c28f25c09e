"""A run on rows of several classes, some of which are annotated at some sites only: from a file to the products."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

from imperfed.api.runs import load
from imperfed.cli.unmeasured import APART, apart
from imperfed.data.scale import Scale
from imperfed.report import write_report
from imperfed.results.folder import RunFolder
from imperfed.results.summary import SiteSummary
from tests.support.terminal import Said, done, imperfed, records, summary

CLASSES = ("cough", "fever", "rash", "gout")
MASKS = {0: [1, 1, 0, 0], 1: [0, 1, 1, 0], 2: [1, 0, 1, 0]}  # nobody annotates gout
SETTINGS = ("--set", "model.name=mlp", "--set", "hidden=8", "--set", "lr=0.02", "--rounds", "2", "--workers", "1")


def ward(path: Path, missing: bool) -> Path:
    """Three sites of 60 rows; the label matrix holds -1 where a class is not annotated, or is complete."""
    draw = np.random.default_rng(0)
    site = np.repeat([0, 1, 2], 60)
    y = (draw.random((180, 4)) < 0.4).astype(int)
    x = 3 * y @ np.eye(4, 6) + draw.normal(size=(180, 6))
    known = np.array([MASKS[k] for k in site], dtype=bool)
    labels = np.where(known, y, -1) if missing else y
    np.savez(path, x=x, y=labels, site=site, classes=np.array(CLASSES), x_test=x[:30], y_test=y[:30])
    return path


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """A run on a file in which the truth of every label is known, and three sites annotate two classes each."""
    folder = tmp_path_factory.mktemp("ward")
    annotates = "; ".join(
        ", ".join(c for c, there in zip(CLASSES, mask, strict=True) if there) for mask in MASKS.values()
    )
    masks = ("--set", f"annotates={annotates}", "--set", "classes=all", "--set", "partition=column")
    return done("run", "fedpsl", "--data", ward(folder / "ward.npz", missing=False), *masks, *SETTINGS, "--out", folder)


def test_figures_class_by_class_and_apart(said: Said) -> None:
    found = summary(said.folder)
    assert found["metric"] == "auroc"
    table = {row["class"]: row for row in found["by_class"]}
    assert table["fever"]["annotated_at"] == ["site-0", "site-1"]
    assert table["gout"]["annotated_at"] == []
    assert table["gout"]["auroc_annotated"] is None
    for row in found["sites"]:
        assert row["auroc_annotated"] > 0.5
        assert row["auroc_never_annotated"] is not None
    own = [r for r in records(said.folder) if r["metric"].startswith("test/personal/auroc") and r["round"] == 2]
    assert {r["metric"] for r in own} == {f"test/personal/auroc{s}" for s in ("", " annotated", " never annotated")}
    assert math.isclose(found["personal"]["mean"], sum(r["value"] for r in found["sites"]) / 3)


def test_a_class_is_predicted_whatever_the_others_are(said: Said) -> None:
    x = np.load(said.folder.parent / "ward.npz")["x"]
    run, scale = load(said.folder), Scale(**RunFolder(said.folder).load_model("scale"))
    with torch.no_grad():
        logits = run.model("site-1")(scale(torch.from_numpy(x).float()))
    assert torch.equal(run.predict(x, "site-1"), torch.sigmoid(logits))


def test_a_class_of_nobody_is_named_in_the_log_once(said: Said) -> None:
    log = (said.folder / "log.txt").read_text()
    assert log.count("no site that answered annotates gout") == 1


def test_labels_are_filled_in_and_those_given_are_kept(said: Said) -> None:
    rows: list[dict[str, Any]] = parquet.read_table(said.folder / "labels" / "site-1.parquet").to_pylist()
    assert list(rows[0]) == ["id", "class", "given", "suggested", "confidence", "reason"]
    assert len(rows) == 48 * 4
    for row in rows:
        if row["class"] in ("fever", "rash"):
            assert row["given"] == row["suggested"]
            assert (row["confidence"], row["reason"]) == (1.0, "annotated")
        elif row["class"] == "cough":
            assert (row["given"], row["reason"]) == ("", "filled in")
            assert 0.5 <= row["confidence"] <= 1
        else:
            assert (row["given"], row["suggested"], row["confidence"]) == ("", "", None)
            assert row["reason"] == "nobody annotates this class"
    labels = summary(said.folder)["labels"]
    assert labels["filled_in"] == labels["n"] == 3 * 48
    assert labels["auroc"] > 0.5
    assert labels["always_absent"] == pytest.approx(0.6, abs=0.06)


def test_what_is_printed(said: Said) -> None:
    assert "class by class, mean over sites" in said.out
    assert "nobody" in said.out
    assert "labels filled in: 144, AUROC" in said.out
    assert "annotated, never: auroc over the classes that a site annotates, and over those" in said.out


def test_the_leading_figures_are_not_shown_twice_where_every_site_annotates_every_class() -> None:
    known, never = SiteSummary("a", 9, 3, 0.8, None, 0.8, None), SiteSummary("b", 9, 3, 0.7, None, 0.8, 0.6)
    assert apart([known]) == {}
    assert apart([known, never]) == {APART[0]: [0.8, 0.8], APART[1]: [None, 0.6]}


def test_the_report_tells_it(said: Said) -> None:
    page = write_report(RunFolder.open(said.folder)).read_text()
    for words in (
        "Missing labels",
        "Nobody annotates gout",
        "288 of 576 labels are missing",
        "144 missing labels were",
    ):
        assert words in page
    assert '<th scope="col">where never annotated</th>' in page
    assert '<th scope="col">classes that only others annotate</th>' in page
    assert "labels filled in, AUROC" in page


def test_what_a_file_leaves_out_is_filled_in_though_nobody_knows_the_truth(tmp_path: Path) -> None:
    own = ward(tmp_path / "own.npz", missing=True)
    run = done("run", "fedpsl", "--data", own, "--set", "partition=column", *SETTINGS, "--out", tmp_path)
    found = summary(run.folder)
    assert found["facts"]["annotates"] == "given"
    assert found["labels"]["accuracy"] is None
    assert found["labels"]["filled_in"] == 144
    assert "the true ones are unknown" in run.out
    assert all(row["auroc_annotated"] > 0.5 for row in found["sites"])


def test_other_methods_learn_from_the_same_labels(tmp_path: Path) -> None:
    own = ward(tmp_path / "own.npz", missing=True)
    for method in ("local-only", "pooled"):
        run = done("run", method, "--data", own, "--set", "partition=column", *SETTINGS, "--out", tmp_path)
        assert summary(run.folder)["objective"] == "masked-bce"


def test_a_partition_that_goes_by_classes_is_refused(tmp_path: Path) -> None:
    own = ward(tmp_path / "own.npz", missing=True)
    assert "use iid, quantity or column" in imperfed("run", "fedpsl", "--data", own, "--out", tmp_path).err
