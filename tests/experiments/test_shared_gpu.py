"""Processes that share a GPU by NVIDIA's multi-process service, with a daemon that only pretends to be one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from imperfed.experiments import parallel, shared_gpu
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.experiment import RunFolder
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.shared_gpu import CONNECTIONS, CONTROL, FOLDER, LOGS, SharedGpu
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from tests.support.terminal import write

DAEMON = f"""#!/bin/sh
echo "$* in ${FOLDER}" >> "$SEEN"
home=${{{FOLDER}:-$DEFAULT}}
if [ "$1" = -d ]; then
    [ -z "$BROKEN" ] || {{ echo "no room for MPS"; exit 3; }}
    test -d "${LOGS}" || exit 4
    sleep 300 & echo $! > "$home/daemon"; exit 0
fi
test -f "$home/daemon" || {{ echo "Cannot find MPS control daemon process"; exit 1; }}
while read line; do
    echo "told $line" >> "$SEEN"
    case $line in
        get_server_list) cat "$home/server" 2> /dev/null;;
        quit) kill $(cat "$home/daemon"); rm "$home/daemon";;
    esac
done
exit 0
"""
CLIENT = f"import os, pathlib; pathlib.Path(os.environ['{FOLDER}'], 'server').write_text('7')"
TURNS = "processes take turns on the GPU: "


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in which the daemon writes what it was told."""
    program = tmp_path / "bin" / CONTROL
    program.parent.mkdir()
    program.write_text(DAEMON)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, value in {"SEEN": "seen", "DEFAULT": "default", "TMPDIR": ""}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    (tmp_path / "default").mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr(shared_gpu.tempfile, "tempdir", None)  # it is known from earlier tests
    monkeypatch.setattr(shared_gpu, "CLIENT", CLIENT)
    monkeypatch.setattr(shared_gpu, "_notes", [])
    yield tmp_path / "seen"
    shared_gpu.tempfile.tempdir = None


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, folder: Path) -> bool:
    """Whether a daemon has ended and its folder is removed, within a few seconds."""
    until = time.monotonic() + 10
    while (alive(pid) or folder.exists()) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid) and not folder.exists()


def test_the_service_runs_in_a_folder_of_its_own_until_the_end(seen: Path) -> None:
    gpu = SharedGpu.begin(0)
    folder = Path(gpu.environment[FOLDER])
    assert gpu.note == "processes compute on the GPU at the same time, by MPS"
    assert gpu.at_once
    assert FOLDER not in os.environ
    assert folder.parent == seen.parent
    assert gpu.environment[LOGS] == str(folder / "log")
    daemon = int((folder / "daemon").read_text())
    assert alive(daemon)
    gpu.end()
    assert gone(daemon, folder)
    assert seen.read_text().splitlines()[-1] == "told quit"
    gpu.end()  # a second time: nothing


def test_without_the_program_processes_take_turns(seen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(seen.parent / "default"))
    gpu = SharedGpu.begin(0)
    assert (gpu.note, gpu.environment) == (f"{TURNS}there is no {CONTROL}", {})
    assert not seen.exists()


def test_a_daemon_that_does_not_start_is_said_and_nothing_is_left(seen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    gpu = SharedGpu.begin(0)
    assert (gpu.note, gpu.environment) == (f"{TURNS}MPS did not start (no room for MPS)", {})
    assert not list(seen.parent.glob("imperfed-mps-*"))


@pytest.mark.parametrize(
    ("client", "why"),
    [
        ("import sys; sys.exit('CUDA error 805')", "CUDA error 805"),
        ("pass", "a program on the GPU went past it"),
    ],
)
def test_a_service_that_no_program_can_use_is_stopped(
    client: str, why: str, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_gpu, "CLIENT", client)
    gpu = SharedGpu.begin(0)
    assert (gpu.note, gpu.environment) == (f"{TURNS}MPS did not start ({why})", {})
    assert seen.read_text().splitlines()[-1] == "told quit"
    assert not list(seen.parent.glob("imperfed-mps-*"))


def test_a_service_that_runs_already_is_used_and_left_alone(seen: Path) -> None:
    own = seen.parent / "default"
    subprocess.run([CONTROL, "-d"], env={**os.environ, LOGS: str(own)}, check=True)
    daemon = int((own / "daemon").read_text())
    try:
        gpu = SharedGpu.begin(0)
        assert gpu.note == "processes compute on the GPU at the same time, by the MPS that was started before"
        assert (gpu.environment, gpu.at_once) == ({}, True)
        gpu.end()
        assert alive(daemon)
        assert "told quit" not in seen.read_text()
    finally:
        os.kill(daemon, signal.SIGTERM)


def test_it_ends_with_the_command_even_if_that_is_killed(seen: Path) -> None:
    code = f"""
import os, signal
from imperfed.experiments import shared_gpu
shared_gpu.CLIENT = {CLIENT!r}
gpu = shared_gpu.SharedGpu.begin(0)
print(gpu.environment[{FOLDER!r}], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # Its own pipe ends with it: a daemon that held it open would keep this test waiting.
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    folder = Path(said.stdout.strip())
    assert said.returncode == -signal.SIGKILL
    assert folder.name.startswith("imperfed-mps-")
    pid = folder / "daemon"
    daemon = int(pid.read_text()) if pid.exists() else 0  # it may have ended already
    assert gone(daemon, folder)
    assert seen.read_text().splitlines()[-1] == "told quit"


@pytest.mark.parametrize(
    ("jobs", "set_to", "part"), [(3, "32", "32"), (6, "32", "16"), (6, "4", "4"), (200, "32", "1")]
)
def test_processes_that_compute_at_once_divide_the_connections(
    jobs: int, set_to: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONNECTIONS, set_to)
    assert SharedGpu("by MPS", {FOLDER: "here"}, at_once=True).for_others(jobs).environment == {
        FOLDER: "here",
        CONNECTIONS: part,
    }
    assert SharedGpu("in turns").for_others(jobs).environment == {}


# -- processes ---------------------------------------------------------------------------------------------------------


def told(number: int) -> tuple[str | None, list[str]]:
    """What a process is told that shares the GPU."""
    return os.environ.get(FOLDER), shared_gpu.notes()


SMALL = {"rounds": 1, "steps": 1, "workers": 1, "labels.candidates": "flip"}


def config(tmp_path: Path) -> Config:
    from imperfed.cli.typed_words import configs

    return configs({"data": str(write(tmp_path / "mine.npz")), "partition": "iid", **SMALL})("cc", 0)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that runs are on a GPU."""
    monkeypatch.setattr(parallel.Hardware, "of", lambda run: Hardware(torch.device("cuda", 0), "tf32"))


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_processes_of_a_comparison_share_the_gpu_until_it_ends(
    error: type[BaseException] | None, seen: Path, on_gpu: None, tmp_path: Path
) -> None:
    daemons: list[tuple[int, Path]] = []

    def compare() -> None:
        with ParallelRuns(2) as processes:
            like = config(tmp_path)
            for future in processes.begun(2, told, [(n,) for n in range(3)], like, tmp_path):
                folder, notes = future.result()
                assert folder is not None
                assert notes == ["processes compute on the GPU at the same time, by MPS"]
                daemons.append((int(Path(folder, "daemon").read_text()), Path(folder)))
            if error:
                raise error

    if error:
        with pytest.raises(error):
            compare()
    else:
        compare()
    assert len(set(daemons)) == 1
    assert gone(*daemons[0])
    assert FOLDER not in os.environ


def test_processes_on_a_cpu_start_nothing(seen: Path, tmp_path: Path) -> None:
    with ParallelRuns(2) as processes:
        (future,) = processes.begun(2, told, [(0,)], config(tmp_path), tmp_path)
        assert future.result() == (None, [])
    assert not seen.exists()


def test_the_log_of_a_run_says_how_it_shares_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_gpu, "_notes", ["by turns"])
    folder, _ = start(config(tmp_path), tmp_path / "runs", Watch())
    assert isinstance(folder, RunFolder)
    assert "by turns" in (folder.path / "log.txt").read_text()
