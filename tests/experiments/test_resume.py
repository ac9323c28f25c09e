"""A run that is killed, interrupted or finished, and `imperfed resume`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.terminal import FLIP, TINY, done, products, program, records

SETTINGS = (
    *("run", "pfedpll", "--rounds", "16", "--workers", "2", *FLIP),
    *("--set", "steps=12", "--set", "participation=0.75", "--set", "on_failure=stop"),
)
OFTEN, NEVER = ("--set", "checkpoint_every=2"), ("--set", "checkpoint_every=1000")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it should end; for looking only."""
    return done(*SETTINGS, *OFTEN, "--out", tmp_path_factory.mktemp("whole")).folder


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a page takes long, and once is enough."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)


def begun(process: subprocess.Popen[str], out: Path, name: str) -> Path:
    """The folder of a run in progress, as soon as it has a file of this name with something in it."""
    found: list[Path] = []

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        found[:] = [path for path in out.glob(f"*/{name}") if path.stat().st_size]
        return bool(found)

    wait_for(there)
    return out / found[0].relative_to(out).parts[0]


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    """Whether a process is gone, or is only kept in the books for a parent that does not look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(process: subprocess.Popen[str]) -> None:
    """`kill -9` of the main process alone; its workers must notice by themselves."""
    workers = children(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    wait_for(lambda: all(map(ended, workers)), 20)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, killed after its first checkpoint; for copying."""
    out = tmp_path_factory.mktemp("killed")
    with program(*SETTINGS, *OFTEN, "--out", out) as process:
        run = begun(process, out, "checkpoints/last.safetensors")
        kill(process)
    assert not (run / "summary.json").exists()
    return run


def test_killed_after_a_checkpoint(uninterrupted: Path, killed: Path, tmp_path: Path) -> None:
    run = shutil.copytree(killed, tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as f:
        f.write('{"round": 9, "site": "*", "metric": "bytes/up", "value": 1}\n')  # of a round after the checkpoint
        f.write('{"round": 9, "site": "sit')  # a line cut short, as a crash of the machine leaves it
    (run / ".summary.json.partly").write_text("{")
    said = done("resume", run)
    rounds = [line for line in said.out.splitlines() if line.startswith("round ")]
    assert 0 < len(rounds) < 16
    assert rounds[-1].startswith("round 16/16:")
    assert products(run) == products(uninterrupted)
    assert {path.name for path in run.iterdir()} == {path.name for path in uninterrupted.iterdir()}


@pytest.mark.usefixtures("no_page")
def test_killed_before_the_first_checkpoint(uninterrupted: Path, killed: Path, tmp_path: Path) -> None:
    run = shutil.copytree(killed, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    assert records(run)
    assert "round 1/16:" in done("resume", run).out
    assert products(run) == products(uninterrupted)


@pytest.mark.usefixtures("no_page")
def test_interrupted_as_by_ctrl_c(uninterrupted: Path, tmp_path: Path) -> None:
    with program(*SETTINGS, *NEVER, "--out", tmp_path) as process:
        run = begun(process, tmp_path, "metrics.jsonl")
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the workers as well
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"interrupted; continue with: imperfed resume {run}\n"
    assert "stopping after this round, with a checkpoint" in out
    shown = [line for line in out.splitlines() if line.startswith("round ")]
    assert len(shown) == records(run)[-1]["round"] < 16
    said = done("resume", run)
    assert f"round {len(shown) + 1}/16:" in said.out
    assert f"round {len(shown)}/16:" not in said.out
    assert products(run) == products(uninterrupted)
    log = (run / "log.txt").read_text()
    assert f"interrupted after round {len(shown)}; checkpoint written" in log
    assert f"resumed after round {len(shown)}" in log


def test_seeds_side_by_side_are_interrupted_with_a_checkpoint_each(tmp_path: Path) -> None:
    words = ("compare", "cc", "--seeds", "0,1,2", *TINY, "--rounds", 5000, "--jobs", 2, "--out", tmp_path)
    with program(*words) as process:
        wait_for(lambda: len([*tmp_path.glob("*/*/metrics.jsonl")]) == 2, 120)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping after this round, with a checkpoint" in out
    runs = [*tmp_path.glob("*/*/checkpoints/last.safetensors")]
    assert len(runs) == 2
    (folder,) = tmp_path.iterdir()
    assert err == f"interrupted; continue the whole comparison with: imperfed resume {folder}\n"


def test_a_finished_run_is_left_as_it_is(uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = done("resume", run)
    assert said.out.startswith(f"{run}: this run has already ended\n")
    assert "mean over sites" in said.out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_killed_after_the_last_round_while_writing(uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    for name in ("summary.json", "report.html", "models/site-1.safetensors", "labels/site-2.parquet"):
        (run / name).unlink()
    done("resume", run)
    assert products(run) == products(uninterrupted)
    assert (run / "report.html").exists()


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_goes_on_where_more_rounds_are_asked_for(uninterrupted: Path, tmp_path: Path) -> None:
    shorter = done(*SETTINGS, *NEVER, "--rounds", "5", "--out", tmp_path).folder
    settings = (shorter / "config.toml").read_text()
    (shorter / "config.toml").write_text(settings.replace("rounds = 5", "rounds = 16"))
    assert "round 6/16:" in done("resume", shorter).out
    assert products(shorter) == products(uninterrupted)
