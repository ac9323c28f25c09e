"""`compare` and the demo: several methods on the same splits, one table."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from imperfed.algorithms import catalogue
from imperfed.cli.training_commands import DEMO
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.comparison_line import Line, line
from imperfed.experiments.comparison_table import markdown
from imperfed.experiments.study import paper_figures
from imperfed.results.folder import RunFolder
from imperfed.results.label_summary import FilledLabels
from imperfed.results.summary import OverSites, Summary
from tests.support import made_run
from tests.support.terminal import QUICK, TINY, arrays, done, imperfed, summary, write

SEEDS = [3, 5]


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a page takes longer than these runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    monkeypatch.setattr("imperfed.experiments.comparison.write_comparison_page", lambda folder: None)


def changed(**fields: Any) -> Summary:
    """A run's summary with other values of some fields."""
    return msgspec.structs.replace(Summary.from_json(json.dumps(made_run.summary())), **fields)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def test_every_method_runs_with_every_seed_on_the_same_split(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    words = (
        "compare",
        "--no-alone",
        "cc, local-only+proden",
        "--data",
        data,
        "--seeds",
        "3,5",
        *TINY,
        "--out",
        tmp_path / "out",
    )
    said = done(*words)
    (folder,) = (tmp_path / "out").iterdir()
    runs = {}
    for path in folder.iterdir():
        if path.is_dir():
            run = RunFolder(path).config().run
            assert run.seed == run.data_seed
            runs[run.method, run.seed] = path
    assert set(runs) == {(m, s) for m in ("cc", "local-only") for s in SEEDS}
    for seed in SEEDS:
        cc, local = (runs[method, seed] / "split.parquet" for method in ("cc", "local-only"))
        assert cc.read_bytes() == local.read_bytes()
    assert (runs["cc", 3] / "split.parquet").read_bytes() != (runs["cc", 5] / "split.parquet").read_bytes()
    told = results(folder)
    assert told["seeds"] == SEEDS
    for row, method in zip(told["lines"], ("cc", "local-only"), strict=True):
        assert row["values"] == [summary(runs[method, seed])["personal"]["mean"] for seed in SEEDS]
        assert row["labels"] == [summary(runs[method, seed])["labels"]["accuracy"] for seed in SEEDS]
        mean = f"{100 * statistics.fmean(row['values']):.2f}"
        assert any(row["method"] in said_line and mean in said_line for said_line in said.out.splitlines())
    assert f"  {folder / 'table.md'}" in said.out.splitlines()


def test_a_second_comparison_gets_its_own_folder_and_the_same_figures(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    for _ in range(2):
        done("compare", "--no-alone", "cc", "--data", data, *TINY, "--out", tmp_path / "out")
    one, other = (tmp_path / "out").iterdir()
    assert results(one) == results(other)
    assert len(list(other.glob("cc-*"))) == 1


def test_a_method_may_have_settings_of_its_own(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    said = done(
        "compare", "--no-alone", "fedprox+cc mu=0.5 lr=0.02, cc", "--data", data, *TINY, "--out", tmp_path / "out"
    )
    (folder,) = (tmp_path / "out").iterdir()
    configs = {RunFolder(p).config().run.method: RunFolder(p).config() for p in folder.iterdir() if p.is_dir()}
    assert configs["fedprox"].flat()["method.mu"] == 0.5
    assert (configs["fedprox"].local.lr, configs["cc"].local.lr) == (0.02, 0.01)
    assert [line["method"] for line in results(folder)["lines"]] == ["fedprox+cc mu=0.5 lr=0.02", "cc"]
    assert "fedprox+cc mu=0.5 lr=0.02" in said.out
    wrong = imperfed("compare", "--no-alone", "fedprox+cc mu", "--data", data, *TINY, "--out", tmp_path / "out")
    assert (wrong.code, wrong.err) == (2, "error: a setting is written as key=value; got 'mu'\n")


def test_a_run_that_diverges_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    words = ("--data", data, "--seeds", "3,5", *TINY, "--set", "rounds.target=0.999", "--out", tmp_path / "out")
    said = done("compare", "--no-alone", "cc lr=1e30, cc", *words)
    (folder,) = (tmp_path / "out").iterdir()
    bad, good = results(folder)["lines"]
    assert (bad["values"], len(bad["diverged"])) == ([], 2)
    assert (len(good["values"]), good["diverged"]) == (2, [])
    table = (folder / "table.md").read_text()
    assert "| cc lr=1e30 |  |  |  |  |  | 2 of 2 |  |" in table
    assert "diverged: round 1: the run has diverged" in said.out
    assert said.out.count("2 of 2") == 1


def test_time_to_a_target_is_the_mean_over_the_runs_that_reached_it() -> None:
    def after(round: int | None, seconds: float | None, of: str = "global model") -> TargetReached:
        return TargetReached(0.85, of, round, seconds)

    a = Line("a", (0.5, 0.7), (), 1.0, None, (0.86, 0.9), (after(3, 1.25), after(6, 2.25)))
    b = Line("b", (0.5, 0.7), (), 1.0, None, (0.86, 0.8), (after(4, 1.5), after(None, None)))
    c = Line("c", (0.5, 0.7), (), 1.0, None, (0.6, 0.8), (after(None, None),) * 2)
    d = Line("d", (0.9,), (), 1.0, None, (), (after(2, 0.5, "mean over sites"),))
    text = markdown([a, b, c, d], SEEDS)
    assert "| rounds to 85 % | s to 85 % |" in text
    assert "| 88.00 ± 2.83 |  |  | 4.5 | 1.8 | 1.0 |" in text
    assert "| 83.00 ± 4.24 |  |  | 4.0 (1 of 2) | 1.5 (1 of 2) | 1.0 |" in text
    assert "| 70.00 ± 14.14 |  |  | not reached | not reached | 1.0 |" in text
    assert "| 2.0 (mean over sites) | 0.5 (mean over sites) | 1.0 |" in text


def test_the_demo_compares_the_method_with_its_references(tmp_path: Path) -> None:
    said = done("run", *QUICK, "--seed", "2", "--out", tmp_path)
    (folder,) = tmp_path.iterdir()
    assert [line["method"] for line in results(folder)["lines"]] == list(DEMO)
    assert DEMO[0] == "pfedpll"
    assert {"local-only+lcp", "pooled+lcp"} < set(DEMO)
    assert results(folder)["seeds"] == [2]
    assert {RunFolder(path.parent).config().run.data for path in folder.glob("*/config.toml")} == {"digits"}
    assert "mean over sites, 1 seed" in said.out


def test_the_table_has_mean_spread_papers_figure_and_the_best_in_bold() -> None:
    lines = [Line("a", (0.5, 0.7), (0.25, 0.75), 1.26, 61.5), Line("b", (0.8, 0.6), (), 2.0, None)]
    text = markdown(lines, SEEDS)
    assert "| a | 60.00 ± 14.14 | 61.50 | 50.00 | 1.3 |" in text
    assert "| b | **70.00 ± 14.14** |  |  | 2.0 |" in text
    assert "Seeds 3, 5" in text
    assert Line("c", (0.5,), (), 1.0, None).spread == 0.0
    assert lines[0].spread == pytest.approx(0.141421, abs=1e-6)  # of a sample: by n - 1
    alone = markdown([Line("c", (0.5,), (), 1.0, None)], [3])  # one run has no deviation
    assert "| c | **50.00** |" in alone
    assert alone.endswith("\n\nSeed 3.\n")


def test_a_figure_belongs_to_its_own_seed() -> None:
    """A run without a figure leaves none, and takes no other run's place."""
    nothing: dict[str, Any] = {"personal": OverSites(None, None, None, 0), "common": {}}
    runs = [changed(seed=4), changed(seed=7, **nothing), changed(seed=9, personal=OverSites(0.1, 0.1, 0.1, 3))]
    found = line("a", runs, {})
    assert dict(zip(found.seeds, found.values, strict=True)) == {4: 0.6, 9: 0.1}


def test_the_papers_figures_are_per_cent_and_of_known_methods() -> None:
    assert paper_figures("no such dataset") == {}
    assert paper_figures("mnist", "candidates") == paper_figures("mnist")
    assert "fedavg" not in paper_figures("mnist", "exact")
    for data in ("mnist", "fashion-mnist", "cifar10", "lost", "birdsong", "fg-net", "italian"):
        assert set(paper_figures(data)) <= set(catalogue())
        assert all(1 < value <= 100 for value in paper_figures(data).values())


def test_labels_filled_in_are_measured_by_their_auroc() -> None:
    filled = FilledLabels(filled_in=9, mean_confidence=0.7, accuracy=0.3, always_absent=0.5, auroc=0.8, n=9)
    unknown = FilledLabels(filled_in=9, mean_confidence=0.7, accuracy=0.3, always_absent=0.5, auroc=None, n=9)
    lines = [line(method, [changed(labels=labels)], {}) for method, labels in (("fedpsl", filled), ("fedavg", unknown))]
    assert [x.labels for x in lines] == [(0.8,), ()]
    assert "labels filled in, AUROC, %" in markdown(lines, [0])
    assert "80.00" in markdown(lines, [0])


def test_methods_that_see_the_truth_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    said = done("compare", "--no-alone", "cc, cross-entropy", "--data", data, *TINY, "--out", tmp_path / "out")
    told = "Not all learned from the same labels: candidates (cc); exact (cross-entropy)."
    assert told in said.out
    assert "exact (the true ones, not the candidates that the data come with)" in said.out
    (folder,) = (tmp_path / "out").iterdir()
    why = "cross-entropy: infers no labels, or their truth is not known"
    assert (folder / "table.md").read_text().endswith(f"Seed 0. {told} {why}.\n")
    assert why in said.out.splitlines()
    same = done("compare", "--no-alone", "cc, proden", "--data", data, *TINY, "--out", tmp_path / "same")
    assert "same labels" not in same.out


def test_a_method_that_cannot_learn_from_the_labels_is_refused_before_any_trains(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz", y=np.eye(3, dtype=int)[arrays()["y"]], candidates=None)
    said = imperfed("compare", "--no-alone", "masked-bce,cc", "--data", data, *TINY, "--out", tmp_path / "out")
    assert said.code == 2
    assert "cc: its objective 'cc' learns from candidates labels" in said.err
    assert "round 1" not in said.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cc", "--seeds", "3,5,3"), "--seeds names a seed twice"),
        (("cc,rc,cc",), "named more than once: cc"),
    ],
)
def test_nothing_is_counted_twice(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    said = imperfed("compare", "--no-alone", *words, *QUICK, "--out", tmp_path)
    assert (said.code, told in said.err) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_method_that_was_not_measured_has_no_figure() -> None:
    """As one without a global model where there is only a common test set."""
    unmeasured = changed(labels=None, common={}, metric="p@1", personal=OverSites.of([]))
    measured = line("local-only", [unmeasured], {})
    assert measured.values == ()
    assert measured.over == "p@1 on the common test set"
    assert "0.00" not in markdown([measured], [0])
