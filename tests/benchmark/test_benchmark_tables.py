"""Tables of a benchmark say what its records hold, on a page and on a console."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from imperfed.benchmark.benchmark_tables import BenchmarkTable, tables
from imperfed.benchmark.kept import known_runs
from imperfed.benchmark.kinds import BenchmarkKind, kind_of, kinds, results_file
from imperfed.benchmark.members import members
from imperfed.benchmark.records import RUN, BenchmarkRecord, BenchmarkRecords, digest
from imperfed.experiments.tuning import Tuning
from tests.support.terminal import done, imperfed

KIND = replace(kind_of("candidates"), figures=("mean", "worst"))


def run(dataset: str, method: str, seed: int, mean: float | None, **more: object) -> BenchmarkRecord:
    figures = {} if mean is None else {"mean": mean, "worst": mean / 2}
    record = BenchmarkRecord(dataset, method, "d", seed, RUN, {"local.lr": 0.1, "method.mu": 1}, figures=figures)
    return replace(record, seconds=2.0, version="imperfed 1", device="cpu", **more)  # type: ignore[arg-type]


def made(*runs: BenchmarkRecord, kind: BenchmarkKind = KIND) -> dict[str, BenchmarkTable]:
    found: dict[str, dict[str, list[BenchmarkRecord]]] = {}
    for one in runs:
        found.setdefault(one.dataset, {}).setdefault(one.method, []).append(one)
    return {table.title.partition(":")[0]: table for table in tables(kind, found)}


def lost(method: str, seed: int) -> BenchmarkRecord:
    return replace(run("digits", method, seed, None, failed="far", diverged=True), seconds=0.0)


ALL = [
    run(dataset, method, seed, base + 0.01 * seed + (0.001 if seed == 1 and method == "cc" else 0))
    for dataset in ("digits", "lost")
    for method, base in (("cc", 0.5), ("rc", 0.7), ("pooled+cc", 0.9))
    for seed in (0, 1, 2)
]


def test_methods_are_in_order_and_references_below_without_a_rank() -> None:
    table = made(*ALL)["digits"].columns
    assert table["method"] == ["`rc`", "`cc`", "`pooled+cc`"]
    assert table["rank"] == ["1.0", "2.0", ""]
    assert table["mean over sites, %"] == ["71.00 ± 1.00", "51.03 ± 1.00", "91.00 ± 1.00"]
    assert table["to the best"] == ["", "**-19.97 (-20.11 to -19.82)**", ""]
    assert table["clearly above / below"] == ["1 / 0", "0 / 1", ""]
    assert table["worst site, %"] == ["35.50", "25.52", "45.50"]
    assert table["s per run"] == ["2.0"] * 3
    assert table["chosen"] == ["lr 0.1, mu 1"] * 3


def test_several_datasets_have_one_order_of_those_that_have_all_of_them() -> None:
    overall = made(*ALL, run("lost", "lw", 0, 0.8))["Over 2 datasets (digits, lost)"]
    assert overall.columns["method"] == ["`rc`", "`cc`"]
    assert overall.columns["lost"] == ["71.00", "51.03"]
    assert overall.notes == ("Without a place, since runs are missing or it does not fit all data: `lw`.",)
    assert "Over 2" not in " ".join(made(*[one for one in ALL if one.dataset == "digits"]))


def test_a_seed_less_is_no_place_and_divergence_is_the_last_one() -> None:
    found = made(
        *ALL[:9],
        run("digits", "lw", 0, 0.99),
        *(run("digits", "proden", s, None, failed="far", diverged=True) for s in (0, 1, 2)),
    )
    table = found["digits"]
    assert table.columns["method"][:4] == ["`rc`", "`cc`", "`proden`", "`lw`"]
    assert table.columns["rank"][:4] == ["1.0", "2.0", "3.0", ""]
    assert table.columns["mean over sites, %"][2] == "diverged"
    assert "`proden`, seed 0, 1, 2: far." in table.notes
    assert "Seeds 0, 1, 2; imperfed 1; cpu." in table.notes


def test_a_mean_over_some_of_the_seeds_says_so_and_what_diverged_took_no_time() -> None:
    few = [run("digits", "lw", 0, 0.5), run("digits", "lw", 1, 0.5), lost("lw", 2)]
    columns = made(*ALL[:9], *few, *(lost("lcp", seed) for seed in (0, 1, 2)))["digits"].columns
    lw, lcp = (columns["method"].index(name) for name in ("`lw`", "`lcp`"))
    assert columns["mean over sites, %"][lw] == "50.00 ± 0.00 (2 of 3 seeds)"
    assert (columns["s per run"][lw], columns["s per run"][lcp]) == ("2.0", "")


def test_the_same_difference_in_all_seeds_has_no_interval() -> None:
    same = [run("digits", method, s, base) for method, base in (("cc", 0.5), ("rc", 0.7)) for s in (0, 1, 2)]
    columns = made(*same)["digits"].columns
    assert columns["to the best"] == ["", "-20.00 (no interval)"]
    assert columns["clearly above / below"] == ["0 / 0", "0 / 0"]


def test_where_low_is_best_the_lowest_is_first() -> None:
    table = made(*ALL, kind=replace(KIND, best="low"))["digits"].columns
    assert table["method"][:2] == ["`cc`", "`rc`"]
    assert table["to the best"][1].startswith("**+19.97")
    assert table["clearly above / below"][:2] == ["1 / 0", "0 / 1"]


@pytest.mark.parametrize("kind", kinds().values(), ids=lambda kind: kind.name)
def test_results_that_come_along_are_those_that_the_benchmark_asks_for(kind: BenchmarkKind) -> None:
    path = results_file(kind.name)
    if not path.exists():
        return
    records = BenchmarkRecords.read(path)
    assert len(records.known) == len(path.read_text().splitlines())
    wanted = {(d.name, m, digest(kind, d, Tuning())) for d in kind.datasets for m in members(kind, d)}
    assert {(r.dataset, r.method, r.made) for r in records.known.values()} <= wanted
    for name, methods in known_runs(kind, kind.datasets, records, Tuning()).items():
        for method, runs in methods.items():
            tried = records.trials(name, method, runs[0].made)
            assert [one.trial for one in tried] == list(range(Tuning().trials))
            best = max((one.score for one in tried if one.score is not None), default=None)
            assert [one.score for one in tried if one.settings == runs[0].settings] == [best] or best is None


@pytest.fixture(autouse=True)
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


WORDS = ("benchmark", "candidates", "--budget", "1", "--rounds", "1", "--jobs", "1", "-s", "steps=2", "-s")
FLIP = "labels.candidates=flip"


def test_a_method_of_ones_own_is_compared_by_its_name(tmp_path: Path) -> None:
    own = "tests.support.own_parts:HalfWay"
    words = (*WORDS, FLIP, "--methods", f"cc, {own}", "--datasets", "digits", "--out", tmp_path)
    said = done(*words, "--seeds", "0,1")
    assert "6 of 6: digits, " in said.out
    path = tmp_path / "benchmark/candidates"
    assert f"| `{own}` |" in (path / "tables.md").read_text()
    lines = (path / "results.jsonl").read_text().splitlines()
    told = json.loads(done(*words, "--seeds", "0", "--json").out)
    assert (path / "results.jsonl").read_text().splitlines() == lines  # nothing was missing
    assert [run["method"] for run in told["runs"]] == ["cc", own]
    assert all(0 <= run["figures"]["worst"] <= run["figures"]["mean"] <= 1 for run in told["runs"])
    assert told["tables"][0]["columns"]["method"][0] in ("`cc`", f"`{own}`")


def test_where_nothing_is_missing_the_tables_are_written_all_the_same(tmp_path: Path) -> None:
    told = json.loads(done("benchmark", "candidates", "--datasets", "digits", "--json", "--out", tmp_path).out)
    assert "| `pfedpll` |" in (tmp_path / "benchmark/candidates/tables.md").read_text()
    assert len(told["runs"]) > 30


def test_without_data_what_comes_along_is_run_and_the_rest_named(tmp_path: Path) -> None:
    said = done(*WORDS, FLIP, "--methods", "cc", "--seeds", "0", "--out", tmp_path)
    assert "left out: lost: no pll/lost.mat in /nowhere (IMPERFED_DATA)" in said.out
    assert "2 of 2: digits, cc, seed 0: " in said.out
    none = imperfed("benchmark", "fairness", "--out", tmp_path)
    assert (none.code, "fairness: none of its datasets can be run here" in none.err) == (2, True)


def test_an_example_is_written_once_and_trained_on(tmp_path: Path) -> None:
    words = ("benchmark", "missing", "--budget", "1", "--rounds", "1", "--jobs", "1", "--methods", "fedavg", "--seeds")
    for seeds in ("0", "0,1"):
        said = done(*words, seeds, "--datasets", "hospitals", "--out", tmp_path)
    assert (tmp_path / "benchmark/missing/data/hospitals/federation.toml").exists()
    assert "1 of 1: hospitals, fedavg, seed 1: " in said.out
