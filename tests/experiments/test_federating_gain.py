"""The sentence with which a comparison begins, and its interval over test rows."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor

import imperfed
from imperfed.evaluation.paired import Figure
from imperfed.experiments.comparison_line import Line
from imperfed.experiments.federating_gain import ALONE, RowFigures, brought, federating_gain


def share(right: Tensor) -> Figure:
    return lambda rows: float(right.double()[rows].mean())


def rows(right: int, n: int = 100) -> Tensor:
    return torch.arange(n) < right


def line(method: str, *seeds: list[Tensor], one_test: bool = False) -> Line:
    """A method's line from which test rows its models get right, by seed and site."""
    measured = [RowFigures(tuple((len(right), share(right)) for right in sites), one_test) for sites in seeds]
    means = [fmean(float(right.double().mean()) for right in sites) for sites in seeds]
    by_row = {seed: (lambda figures=figures: figures) for seed, figures in enumerate(measured)}
    return Line(method, tuple(means), (), 1.0, None, by_row=by_row)


def width(ours: Line, theirs: Line) -> float:
    gain = federating_gain([ours, theirs])
    assert gain is not None
    return gain.difference.high - gain.difference.low


def test_the_first_sentence_compares_with_the_best_alone() -> None:
    alone, network = line(ALONE, [rows(60), rows(70)]), line("local-only", [rows(50), rows(50)])
    told = brought([line("cc", [rows(75), rows(75)]), line("pooled", [rows(100), rows(100)]), network, alone])
    assert told.startswith("Federating brought 10.0 points over the best that sites do alone: cc 75.0 % against 65.0 %")
    assert "(alone)" in told
    assert told.endswith("n = 200 test rows.")
    assert brought([line("cc", [rows(30), rows(30)]), alone]).startswith("Federating cost 35.0 points compared with")
    assert not brought([line("cc", [rows(30)]), line("pooled", [rows(40)])])


def test_what_few_rows_cannot_tell_is_not_clear() -> None:
    told = brought([line("cc", [rows(52), ~rows(45)]), line(ALONE, [rows(50), rows(55)])])
    assert told.startswith("What federating brings over the best that sites do alone is not clear: cc 53.5 %")


def test_rows_are_paired() -> None:
    paired = width(line("cc", [rows(60)]), line(ALONE, [rows(50)]))
    assert paired < width(line("cc", [rows(60)]), line(ALONE, [rows(50).flip(0)])) / 2


def test_the_same_rows_with_another_seed_are_no_further_rows() -> None:
    ours, theirs = [rows(60)], [rows(50)]
    once = width(line("cc", ours), line(ALONE, theirs))
    assert width(line("cc", ours, ours, ours), line(ALONE, theirs, theirs, theirs)) == pytest.approx(once)
    other = [rows(66, 110)]
    twice = width(line("cc", ours, other), line(ALONE, theirs, [rows(55, 110)]))
    assert twice < 0.85 * once  # other rows, as their number says


def test_one_test_for_all_sites_is_drawn_once() -> None:
    ours, theirs = [rows(60)] * 4, [rows(50)] * 4
    apart = width(line("cc", ours), line(ALONE, theirs))
    assert width(line("cc", ours, one_test=True), line(ALONE, theirs, one_test=True)) > 1.6 * apart


def test_a_seed_that_diverged_is_left_out_of_both() -> None:
    ours, theirs = line("cc", [rows(60)], [rows(60)]), line(ALONE, [rows(40)], [rows(50)])
    del ours.by_row[0]  # type: ignore[attr-defined]
    gain = federating_gain([ours, theirs])
    assert gain is not None
    assert gain.seeds == 1
    assert gain.difference.second == pytest.approx(0.5)


def test_models_are_read_from_the_folders_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    few = {"sites": 3, "rounds": 2, "steps": 4, "workers": 1, "kind": "exact", "device": "cpu"}
    compared = imperfed.compare(
        ["fedavg", "local-only"], "digits", [0, 1], tmp_path, alone=False, progress=False, **few
    )
    results = json.loads((compared.folder / "results.json").read_text())
    means = {one["method"]: fmean(one["values"]) for one in results["lines"]}
    told = results["brought"]
    assert (told["federated"], told["alone"]) == ("fedavg", "local-only")
    assert told["first"] == pytest.approx(means["fedavg"])
    assert told["second"] == pytest.approx(means["local-only"])
    assert told["low"] < told["first"] - told["second"] < told["high"]
    assert compared.brought == told["sentence"]
    assert (compared.folder / "table.md").read_text().startswith(told["sentence"])
