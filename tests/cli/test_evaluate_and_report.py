"""`evaluate` and `report`, which work from a finished run's files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.terminal import QUICK, done, imperfed, strict, summary


def test_evaluate_finds_the_figures_of_the_summary(finished: Path) -> None:
    figures = strict(done("evaluate", finished, "--json").out)
    told = summary(finished)
    assert figures == {
        site["site"]: {"accuracy": {"value": site["value"], "n": site["test"]}} for site in told["sites"]
    }
    shown = done("evaluate", finished).out
    mean = next(line for line in shown.splitlines() if "mean over sites" in line)
    assert f"{100 * told['personal']['mean']:.2f}" in mean
    assert str(told["personal"]["n"]) in mean


@pytest.mark.parametrize("method", ["cc", "local-only+proden", "pooled+lcp", "cross-entropy"])
def test_evaluate_knows_who_predicts_with_which_model(method: str, tmp_path: Path) -> None:
    run = done("run", method, *QUICK, "--out", tmp_path).folder
    figures = strict(done("evaluate", run, "--json").out)
    assert [f["accuracy"]["value"] for f in figures.values()] == [s["value"] for s in summary(run)["sites"]]
    assert (run / "models" / "site-0.safetensors").exists() == method.startswith("local-only")


def test_evaluate_writes_nothing(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done("evaluate", run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_evaluate_says_how_to_continue_what_has_not_ended(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "summary.json").unlink()
    shutil.rmtree(run / "models")
    said = imperfed("evaluate", run)
    assert (said.code, said.err) == (
        2,
        f"error: {run}: this run has not ended; continue with: imperfed resume {run}\n",
    )


def test_report_writes_the_same_page_anew(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    page = (run / "report.html").read_text()
    (run / "report.html").unlink()
    assert done("report", run).out.strip() == str(run / "report.html")
    assert (run / "report.html").read_text() == page
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "pfedpll" in page
    assert f"{100 * summary(run)['personal']['mean']:.2f}" in page
    assert not any(outside in page for outside in ('src="http', "src='http", "<link", "@import", "url(http"))
