"""New folders get names that nothing else has, also when several are made at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from imperfed.results import folder_names
from imperfed.results.folder_names import created_folder


def test_a_name_that_is_taken_in_between_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of the same settings in the same second would find the same name unused."""
    (tmp_path / "taken").mkdir()
    paths: Iterator[Path] = iter([tmp_path / "taken", tmp_path / "free"])
    monkeypatch.setattr(folder_names, "unused_path", lambda *_: next(paths))
    assert created_folder(tmp_path, "run", "abc") == tmp_path / "free"
    assert (tmp_path / "free").is_dir()


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OSError, match="out"):
        created_folder(tmp_path / "out", "run", "abc")
