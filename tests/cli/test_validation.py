"""Held-out rows from the command line and from Python: what a run prints, writes, resumes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import imperfed
from imperfed.core.federation import Federation
from imperfed.core.labels import Candidates
from imperfed.testing.toy import world
from tests.support.terminal import FLIP, done, summary
from tests.support.terminal import imperfed as command

QUICK = ("--rounds", 4, "--set", "steps=3", "--workers", 1, "--device", "cpu", *FLIP)


def lines(run: Path, metric: str) -> list[dict[str, object]]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record["metric"] == metric]


def test_a_run_says_and_writes_its_scores_and_the_best_round(tmp_path: Path) -> None:
    said = done("run", "proden", "--data", "digits", *QUICK, "--set", "validation=0.2", "--out", tmp_path)
    (run,) = tmp_path.iterdir()
    best = summary(run)["validation"]
    assert best["figure"] == "consistency"
    assert best["rows"] == sum(summary(run)["facts"]["held_out_rows"])
    scores = [line["value"] for line in lines(run, "validation/consistency") if line["site"] == "*"]
    assert len(scores) == 4
    assert best["score"] == max(scores) == scores[best["round"] - 1]
    assert f"validation {100 * scores[0]:.1f} % (best: round 1)" in said.out
    assert f"round {best['round']} (consistency" in said.out
    assert "results are those of that round" in (run / "log.txt").read_text()
    # What evaluates the models again finds the same training rows, and the models of the best round.
    again = json.loads(done("evaluate", run, "--json").out)
    assert {site: figures["accuracy"]["value"] for site, figures in again.items()} == {
        row["site"]: row["value"] for row in summary(run)["sites"]
    }


def test_the_models_are_those_of_a_run_that_ends_with_the_best_round(tmp_path: Path) -> None:
    federation = toy()
    result = imperfed.run("cc", federation, tmp_path / "long", progress=False, **SETTINGS, rounds=8)
    best = result.summary.validation
    assert best is not None
    assert best.kept
    assert best.round < 8  # the toy is learned in a few rounds; the first of equals is best
    short = imperfed.run("cc", federation, tmp_path / "short", progress=False, **SETTINGS, rounds=best.round)
    assert same_models(result.folder, short.folder)
    last = imperfed.run("cc", federation, tmp_path / "last", progress=False, **SETTINGS, rounds=8, keep_best=False)
    assert not same_models(result.folder, last.folder)
    assert "validation/consistency" in result.history["metric"].to_pylist()


def test_a_run_ends_early_and_is_finished(tmp_path: Path) -> None:
    result = imperfed.run("cc", toy(), tmp_path, progress=False, **SETTINGS, rounds=30, patience=2)
    best = result.summary.validation
    assert best is not None
    assert best.early
    assert result.summary.rounds == best.round + 2 < 30
    assert imperfed.load(result.folder).summary == result.summary


def test_a_resumed_run_ends_with_the_same_models(tmp_path: Path) -> None:
    whole = imperfed.run("cc", toy(), tmp_path / "whole", progress=False, **SETTINGS, rounds=30, patience=2)

    def interrupt(report: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imperfed.run(
            "cc",
            toy(),
            tmp_path / "cut",
            progress=False,
            **SETTINGS,
            rounds=30,
            patience=2,
            checkpoint_every=1,
            on_round=lambda report: interrupt(report) if report.round == 2 else False,
        )
    (folder,) = (tmp_path / "cut").iterdir()
    resumed = imperfed.resume(folder, data=toy(), progress=False)
    assert same_models(resumed.folder, whole.folder)
    assert resumed.summary.validation == whole.summary.validation


def test_patience_without_held_out_rows_is_refused(tmp_path: Path) -> None:
    said = command("run", "cc", "--data", "digits", *FLIP, "--set", "patience=3", "--out", tmp_path)
    assert said.code == 2
    assert "set split.validation, such as 0.1" in said.err
    assert not list(tmp_path.iterdir())


SETTINGS = {"model": "mlp", "steps": 5, "batch": 8, "lr": 0.1, "validation": 0.25, "workers": 1, "device": "cpu"}


def toy() -> Federation:
    return world(Candidates)[0]


def same_models(one: Path, other: Path) -> bool:
    models = [load_file(folder / "models" / "global.safetensors") for folder in (one, other)]
    return all(torch.equal(t, models[1][name]) for name, t in models[0].items())
