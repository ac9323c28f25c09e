"""`run`: what its folder holds, that the same settings give the same bytes, and how it fails."""

from __future__ import annotations

import errno
import os
import statistics
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file

from imperfed.results.folder import RunFolder
from tests.support.terminal import QUICK, TINY, Said, done, imperfed, products, records, strict, summary, write

SITES = ["site-0", "site-1", "site-2", "site-3"]


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet table."""
    found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return found


def test_the_folder_holds_what_is_promised_and_nothing_else(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    assert names == {
        *("config.toml", "env.json", "split.parquet", "metrics.jsonl", "summary.json", "report.html", "log.txt"),
        "checkpoints/last.safetensors",
        "models/global.safetensors",
        *(f"models/{site}.safetensors" for site in SITES),
        *(f"labels/{site}.parquet" for site in SITES),
        "labels/README.txt",
    }
    assert finished.name.startswith("pfedpll-digits-")


def test_what_is_printed(said: Said, finished: Path) -> None:
    lines = said.out.splitlines()
    assert lines[0].startswith("pfedpll on digits: 4 sites of ")
    assert [line.partition(":")[0] for line in lines[1:3]] == ["round 1/2", "round 2/2"]
    mean = 100 * summary(finished)["personal"]["mean"]
    assert any("mean over sites" in line and f"{mean:.2f}" in line for line in lines)
    for name in ("report.html", "summary.json", "metrics.jsonl", "models", "labels"):
        assert f"  {finished / name}" in lines


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    said = imperfed("run", "cc", "--data", data, *TINY, "--json", "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert said.code == 0
    assert said.out == (folder / "summary.json").read_text() + "\n"
    assert "round 2/2:" in said.err
    assert f"  {folder / 'summary.json'}\n" in said.err


def test_the_environment_tells_versions_and_no_place(finished: Path) -> None:
    env = strict((finished / "env.json").read_text())
    assert env["torch"] == torch.__version__
    assert env["device"] == "cpu"
    assert not any("/" in str(value) for value in env.values())


def test_split_and_labels_cover_the_same_rows(finished: Path) -> None:
    split = rows(finished / "split.parquet")
    assert len({row["id"] for row in split}) == len(split)
    sizes = {site["site"]: site["train"] for site in summary(finished)["sites"]}
    for site in SITES:
        labels = rows(finished / "labels" / f"{site}.parquet")
        assert [row["id"] for row in labels] == [row["id"] for row in split if row["site"] == site]
        assert len(labels) == sizes[site]


def test_a_suggested_label_is_one_of_those_given(finished: Path) -> None:
    for site in SITES:
        for row in rows(finished / "labels" / f"{site}.parquet"):
            assert list(row) == ["id", "given", "suggested", "confidence", "reason"]
            given = row["given"].split("|")
            assert len(given) > 1
            assert row["suggested"] in given
            assert 1 / len(given) <= row["confidence"] + 1e-6 <= 1 + 2e-6
            assert row["reason"] == f"best of {len(given)} candidates"


def test_metrics_have_a_line_for_each_round_site_and_metric(finished: Path) -> None:
    lines = records(finished)
    assert all({"round", "site", "metric", "value"} <= line.keys() for line in lines)
    keys = [(line["round"], line["site"], line["metric"]) for line in lines]
    assert len(set(keys)) == len(keys)
    of_sites = {(r, s, m) for r in (1, 2) for s in SITES for m in ("train/loss", "test/personal/accuracy")}
    of_none = {(r, "*", m) for r in (1, 2) for m in ("bytes/down", "bytes/up", "sent/w")}
    assert set(keys) == of_sites | of_none
    last = {line["site"]: line for line in lines if line["round"] == 2 and line["metric"] == "test/personal/accuracy"}
    for site in summary(finished)["sites"]:
        assert (last[site["site"]]["value"], last[site["site"]]["n"]) == (site["value"], site["test"])


def test_the_summary_adds_up(finished: Path) -> None:
    told = summary(finished)
    values, n = [s["value"] for s in told["sites"]], [s["test"] for s in told["sites"]]
    weighted = sum(v * k for v, k in zip(values, n, strict=True)) / sum(n)
    assert told["personal"]["mean"] == statistics.fmean(values)
    assert told["personal"]["weighted"] == pytest.approx(weighted)
    assert told["personal"]["worst"] == min(values)
    assert told["personal"]["n"] == sum(n)
    assert told["labels"]["n"] == sum(s["train"] for s in told["sites"])
    mistaken = sum(map(sum, told["labels"]["mistaken"]))
    assert told["labels"]["accuracy"] == pytest.approx(1 - mistaken / told["labels"]["n"])
    shared = load_file(finished / "models" / "global.safetensors")
    assert told["sent"] == {"w": [sum(t.numel() for t in shared.values())]}
    up = [line["value"] for line in records(finished) if line["metric"] == "bytes/up"]
    assert up == [4 * 4 * told["sent"]["w"][0]] * 2  # four sites, four bytes a number


def test_sites_that_the_data_name_and_the_run_does_not_use_are_told(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz", site=np.arange(40) % 3)
    told = "sites are simulated; to use the 3 that the data name: -s partition=column"
    words = ("run", "cc", "--data", data, *TINY, "--out", tmp_path / "out")
    assert told in done(*words).out.splitlines()
    assert "simulated" not in done(*words, "--set", "partition=column").out


def test_the_changes_of_a_repair_are_told(tmp_path: Path) -> None:
    draw, y = np.random.default_rng(0), np.arange(240) % 2
    x = draw.normal(size=(2, 12))[y] + 0.3 * draw.normal(size=(240, 12))
    given = np.where(np.arange(240) % 8 == 7, 1 - y, y)
    given[:40] = y[:40]
    data = write(tmp_path / "birds.npz", x=x, y=y, given=given, trusted=np.arange(240) < 40, candidates=None)
    said = done("run", "fedavg", "--data", data, *TINY, "--set", "repair=fb-nll", "--set", "rank=1", "--out", tmp_path)
    changed = summary(said.folder)["repair"]["changed"]
    assert f"fb-nll changed {changed} of " in said.out
    assert "were wrong before and" in said.out


def test_models_share_what_is_shared_and_keep_their_own_heads(finished: Path) -> None:
    shared = load_file(finished / "models" / "global.safetensors")
    one, other = (load_file(finished / "models" / f"{site}.safetensors") for site in SITES[:2])
    assert one.keys() - shared.keys() == {"corr.weight", "head.weight", "head.bias"}
    assert all(torch.equal(one[name], shared[name]) for name in shared)
    assert not torch.equal(one["head.weight"], other["head.weight"])
    modes = {path.stat().st_mode & 0o777 for path in (finished / "models").iterdir()}
    assert modes == {(finished / "summary.json").stat().st_mode & 0o777}


def test_the_same_again_is_the_same_to_the_last_byte(finished: Path, tmp_path: Path) -> None:
    again = done("run", "pfedpll", *QUICK, "--out", tmp_path).folder
    assert products(again) == products(finished)
    other = done("run", "pfedpll", *QUICK, "--seed", 1, "--out", tmp_path).folder
    assert products(other) != products(finished)


def test_the_number_of_workers_changes_no_byte(finished: Path, tmp_path: Path) -> None:
    for workers in (2, 3):
        other = done("run", "pfedpll", *QUICK, "--workers", workers, "--out", tmp_path).folder
        assert products(other) == products(finished)
        assert f"workers = {workers}" in (other / "config.toml").read_text()


def test_the_settings_of_a_run_are_an_experiment_file(finished: Path, tmp_path: Path) -> None:
    again = done("run", finished / "config.toml", "--out", tmp_path).folder
    assert (again / "config.toml").read_bytes() == (finished / "config.toml").read_bytes()
    assert products(again) == products(finished)
    longer = done("run", finished / "config.toml", "--rounds", 3, "--set", "run.seed=4", "--out", tmp_path).folder
    resolved = tomllib.loads((longer / "config.toml").read_text())
    assert (resolved["rounds"]["rounds"], resolved["run"]["seed"]) == (3, 4)


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    words = ("run", "cc", "--data", data, *TINY, "--out", tmp_path / "out")
    assert len({done(*words).folder for _ in range(3)}) == 3


def test_a_folder_named_like_markup_is_printed_as_it_is(tmp_path: Path) -> None:
    data = write(tmp_path / "[bold]mine:smile:.npz")
    out = tmp_path / "[red] [/ :x: \N{CAT FACE}"
    folder = done("run", "cc", "--data", data, *TINY, "--out", out).folder
    assert folder.parent == out
    done("run", folder / "config.toml", "--out", tmp_path / "again")


def test_data_without_truth_are_learned_from_and_not_measured(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz", y=None)
    settings = ("--set", "partition=iid", "--set", "test=0")
    said = done("run", "cc", "--data", data, *QUICK, *settings, "--out", tmp_path / "out")
    assert "nan" not in said.out
    told = summary(said.folder)
    assert told["personal"] == {"mean": None, "weighted": None, "worst": None, "n": 0}
    assert {line["metric"] for line in records(said.folder)} == {"train/loss", "bytes/down", "bytes/up", "sent/w"}
    assert len(rows(said.folder / "labels" / "site-3.parquet")) == 10
    again = strict(done("evaluate", said.folder, "--json").out)
    assert again["site-0"] == {"accuracy": {"value": None, "n": 0}}


def test_rounds_without_evaluation_show_no_figure(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    words = ("run", "cc", "--data", data, *TINY, "--rounds", 3, "--set", "evaluate_every=2", "--out", tmp_path)
    told = [line for line in done(*words).out.splitlines() if line.startswith("round ")]
    assert ["accuracy" in line for line in told] == [False, True, True]
    assert not any(", ," in line for line in told)


@pytest.mark.parametrize(("policy", "code"), [("skip", 5), ("stop", 1)])
def test_a_run_that_diverges_says_so_and_logs_it(
    policy: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[RunFolder] = []
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", pages.append)
    said = imperfed("run", "cc", *QUICK, "--set", "lr=1e30", "--set", f"on_failure={policy}", "--out", tmp_path)
    assert said.code == code
    assert said.err.startswith("error: round 1: ")
    assert "site-0, site-1, site-2, site-3: its answer was refused: 'w' is not finite" in said.err
    (run,) = tmp_path.iterdir()
    assert f"failed: {said.err.removeprefix('error: ')}" in (run / "log.txt").read_text()
    assert not (run / "models").exists()
    if code == 5:
        assert said.err.startswith("error: round 1: the run has diverged: 0 of 4 sites answered")
        assert pages == [RunFolder(run)]


def test_rows_at_the_server_may_be_marked_in_the_file(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz", trusted=np.arange(40) % 4 == 0)
    words = ("--set", "kind=exact", "--set", "partition=iid", "--set", "sites=2", "--out", tmp_path)
    said = done("run", "pfedmo", "--data", data, *QUICK, *words)
    facts = summary(said.folder)["facts"]
    assert facts["trusted_rows"] == 10
    assert sum(facts["rows"]) + sum(facts["test_rows"]) + facts["public_rows"] == 30


def test_classes_that_nobody_holds_are_counted(tmp_path: Path) -> None:
    few = ("--set", "kind=exact", "--set", "partition=classes", "--set", "per_site=2", "--set", "sites=2")
    assert ", 4 of 10 classes held by some site" in done("run", "fedavg", *QUICK, *few, "--out", tmp_path).out
    assert "held by some site" not in done("run", "cc", *QUICK, "--out", tmp_path).out


def test_a_target_is_told_with_its_round_and_seconds(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    words = ("run", "cc", "--data", data, *TINY, "--rounds", 3, "--out", tmp_path)
    told = done(*words, "--set", "rounds.target=0.01")
    target = strict((told.folder / "summary.json").read_text())["target"]
    seconds = [r["value"] for r in records(told.folder) if r["metric"] == "seconds"]
    assert len(seconds) == 3
    assert target.pop("seconds") == pytest.approx(seconds[0], abs=1e-3)
    assert target == {"value": 0.01, "of": "mean over sites", "round": 1}
    assert f"1 % (mean over sites) was reached after round 1, {seconds[0]:.1f} s of training" in told.out
    without = done(*words)
    assert not any(r["metric"] == "seconds" for r in records(without.folder))
    assert "target" not in summary(without.folder)


def test_a_disk_that_fills_up_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunFolder, records: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")

    monkeypatch.setattr(RunFolder, "append", full)
    said = imperfed("run", "cc", "--data", write(tmp_path / "mine.npz"), *TINY, "--out", tmp_path / "out")
    assert said.code == 1
    (folder,) = (tmp_path / "out").iterdir()
    full_disk = "metrics.jsonl: cannot be written, the disk is full"
    assert said.err == f"error: {full_disk}; make room, then continue with: imperfed resume {folder}\n"


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "the GPU"),
        (RuntimeError("CUDA error: out of memory\nSearch for ..."), "the GPU"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "this machine"),
        (MemoryError(), "this machine"),
    ],
)
def test_memory_that_runs_out_is_no_traceback(
    error: BaseException, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(self: RunFolder, records: object) -> None:
        raise error

    monkeypatch.setattr(RunFolder, "append", too_much)
    said = imperfed("run", "cc", "--data", write(tmp_path / "mine.npz"), *TINY, "--out", tmp_path / "out")
    assert said.code == 1
    assert said.err.startswith(f"error: {whose} has too little memory for this; fewer processes (--jobs, --workers)")


def test_another_error_of_the_program_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: RunFolder, records: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(RunFolder, "append", wrong)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        imperfed("run", "cc", "--data", write(tmp_path / "mine.npz"), *TINY, "--out", tmp_path / "out")


def test_a_run_that_is_to_be_on_the_cpu_does_not_see_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise torch would begin to use it, and no worker could be forked."""
    seen: list[str] = []
    monkeypatch.setattr(
        "imperfed.experiments.experiment.write_report", lambda folder: seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    )
    for device in ("auto", "cpu"):
        done("run", "cc", *QUICK, "--device", device, "--out", tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert seen == ["0", ""]
