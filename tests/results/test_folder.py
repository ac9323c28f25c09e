from __future__ import annotations

import io
from pathlib import Path

import pytest

from imperfed.core.errors import UsageError
from imperfed.results.folder import RunFolder


def test_a_line_that_a_crash_cut_short_costs_no_other_line(tmp_path: Path) -> None:
    """A site that was killed comes back and goes on in the same files."""
    folder, first, later = RunFolder(tmp_path), {"round": 1}, [{"round": 2}, {"round": 3}]
    folder.append([first])
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as f:
        f.write('{"round": 2, "site": "no')
    folder.append(later)
    assert list(folder.records()) == [first, *later]
    (tmp_path / "log.txt").write_text("cut sho", encoding="utf-8")
    folder.log("whole")
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()[1].endswith(" whole")


def test_names_of_any_letters_can_be_logged_in_any_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "text_encoding", lambda encoding, level=2: encoding or "ascii")
    folder = RunFolder(tmp_path)
    folder.log("Hôpital Nº 9 is there")
    assert "Hôpital Nº 9 is there\n".encode() in (tmp_path / "log.txt").read_bytes()


def test_a_folder_of_runs_names_the_one_that_is_meant(tmp_path: Path) -> None:
    for name, named in (("first", "name the run in it: "), ("second", "name one of the 2 runs in it, such as ")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text("")
        with pytest.raises(UsageError, match=f"{named}.*{tmp_path}"):
            RunFolder.open(tmp_path)
