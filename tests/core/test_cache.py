"""Where the cache is, and how arrays get there."""

import os
from pathlib import Path

import numpy as np
import pytest

from imperfed.core.cache import cache_folder, keep


def test_the_environment_names_it(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder("clean") == Path("/elsewhere/imperfed/clean")


def test_else_it_is_in_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder("features") == tmp_path / ".cache" / "imperfed" / "features"
    assert cache_folder() == tmp_path / ".cache" / "imperfed"


def test_an_array_is_kept_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "a.npy"
    assert keep(path, np.arange(6).reshape(2, 3))
    assert np.load(path).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [p.name for p in path.parent.iterdir()] == ["a.npy"]


def test_what_cannot_be_kept_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert not keep(tmp_path / "file" / "a.npy", np.zeros(2))

    def full(file, array):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    assert not keep(tmp_path / "a.npy", np.zeros(2))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_two_processes_do_not_write_into_each_others_file(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(np, "save", lambda file, array: written.append(file.name))
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        keep(tmp_path / "a.npy", np.zeros(2))
    assert len(set(written)) == 2


def test_what_is_no_failure_of_the_disk_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "save", lambda file, array: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        keep(tmp_path / "a.npy", np.zeros(2))
