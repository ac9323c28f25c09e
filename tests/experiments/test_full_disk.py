"""A disk that is full in the middle of a run: one message, the path, how to continue; and the run can be continued."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from imperfed.core.atomic import append_lines, write_whole
from imperfed.core.errors import DiskFullError
from tests.support.terminal import TINY, done, imperfed, products, write


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a page takes longer than these runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def full_for(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let the disk be full for files of this name; as in the system, the error of a write names no file."""
    replace, open_file = Path.replace, Path.open

    def no_replace(self: Path, target: Any) -> Any:
        if Path(target).match(name):
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    def no_append(self: Path, mode: str = "r", *args: Any, **named: Any) -> Any:
        if "a" in mode and self.match(name):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(self, mode, *args, **named)

    patch.setattr(Path, "replace", no_replace)
    patch.setattr(Path, "open", no_append)


@pytest.mark.parametrize(
    "name",
    ["last.safetensors", "labels/*.parquet", "summary.json", "metrics.jsonl", "log.txt", "split.parquet", "models/*"],
)
def test_the_message_names_the_file_and_the_way_on(name: str, tmp_path: Path) -> None:
    words = ("run", "cc", "--data", write(tmp_path / "mine.npz"), *TINY)
    whole = done(*words, "--out", tmp_path / "whole").folder
    with pytest.MonkeyPatch.context() as patch:
        full_for(patch, name)
        said = imperfed(*words, "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert said.code == 1
    message = said.err.strip()
    assert "\n" not in message
    assert message.endswith(f"the disk is full; make room, then continue with: imperfed resume {folder}")
    assert Path(message.removeprefix("error: ").partition(":")[0]).match(name)
    done("resume", folder)
    assert products(folder) == products(whole)


def test_of_a_comparison_the_whole_is_continued(tmp_path: Path) -> None:
    words = ("compare", "cc,proden", "--no-alone", "--data", write(tmp_path / "mine.npz"), *TINY)
    with pytest.MonkeyPatch.context() as patch:
        full_for(patch, "summary.json")
        said = imperfed(*words, "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert said.code == 1
    assert said.err.strip().endswith(f"continue the whole comparison with: imperfed resume {folder}")
    assert "proden" in done("resume", folder).out


def test_errors_of_libraries_are_understood(tmp_path: Path) -> None:
    def of_rust(path: Path) -> None:
        raise ValueError('IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })')

    with pytest.raises(DiskFullError, match=f"{tmp_path / 'x'}: cannot be written, the disk is full"):
        write_whole(tmp_path / "x", of_rust)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IsADirectoryError):  # another error stays what it is
        append_lines(tmp_path, ["line"])
