"""The cached catalogue: it holds what the classes say, until something changes, and lists need nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import imperfed as package
from imperfed.cli import catalogue_cache
from imperfed.cli.catalogue import LISTS, pages, setting_names
from imperfed.cli.catalogue_cache import CachedCatalogue, read_catalogue
from imperfed.data.sources import sources
from tests.support.terminal import done, surroundings


@contextmanager
def another_catalogue() -> Iterator[CachedCatalogue]:
    """Have the classes give another catalogue, by which a second reading of them is seen."""
    another = CachedCatalogue({"algorithms": [{"name": "another"}]}, {}, {}, {})
    with patch.object(catalogue_cache, "_from_classes", return_value=another):
        yield another


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the catalogue, and is one test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(catalogue_cache, "PACKAGE", tmp_path / "package")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "method.py").touch()
    read_catalogue()
    return tmp_path


def test_the_cache_holds_what_the_classes_say(own_cache: Path) -> None:
    with another_catalogue():
        stored = read_catalogue()
    assert stored.lists == {what: entries() for what, entries in LISTS.items()}
    assert stored.settings == setting_names()
    assert stored.pages == pages()


@pytest.mark.parametrize(
    "change", ["a file's time", "a new file", "the version", "a plug-in", "a damaged cache", "none"]
)
def test_the_cache_is_read_until_something_changes(
    change: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "a file's time":
        os.utime(own_cache / "package" / "method.py", ns=(1, 1))
    elif change == "a new file":
        (own_cache / "package" / "new.py").touch()
    elif change == "the version":
        monkeypatch.setattr(package, "__version__", "99")
    elif change == "a plug-in":
        plug_in(own_cache, monkeypatch)
    elif change == "a damaged cache":
        (stored,) = (own_cache / "imperfed" / "catalogue").iterdir()
        stored.write_text("{")
    with another_catalogue() as another:
        assert (read_catalogue() == another) == (change != "none")


def plug_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a plug-in whose module is a file of this folder."""
    file = folder / "other.py"
    file.touch()
    entry = metadata.EntryPoint("other", "other_package.other:Other", "imperfed.algorithms")
    monkeypatch.setattr(metadata, "entry_points", lambda: metadata.EntryPoints([entry]))
    monkeypatch.setitem(sys.modules, "other_package.other", SimpleNamespace(__file__=str(file)))  # type: ignore[arg-type]
    return file


def test_a_changed_file_of_a_plug_in_is_noticed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = plug_in(own_cache, monkeypatch)
    read_catalogue()
    with another_catalogue() as another:
        assert read_catalogue() != another
        os.utime(file, ns=(1, 1))
        assert read_catalogue() == another


def test_without_a_cache_only_time_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with another_catalogue() as another:
        assert read_catalogue() == another


def test_a_dataset_is_present_where_it_can_be_read(tmp_path: Path) -> None:
    """One of several files is enough where a dataset says so."""
    alternatives = next(one for one in sources().values() if one.any_of)
    for path in (*(path for path in alternatives.files if path not in alternatives.any_of), alternatives.any_of[0]):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
        entries = {
            entry["name"]: entry
            for entry in json.loads(done("list", "datasets", "--json", IMPERFED_DATA=str(tmp_path)).out)
        }
        for name, known in sources().items():
            assert (entries[name]["present"] == "yes") == known.present(tmp_path)
    assert entries[alternatives.name]["present"] == "yes"


@pytest.mark.parametrize("words", ["list algorithms", "list datasets", "show fedavg", "show mnist"])
def test_lists_and_pages_wait_for_nothing_heavy(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read_catalogue()
    code = (
        f"import sys; sys.argv = ['imperfed', *'{words}'.split(), '--json']\n"
        "try:\n    from imperfed.__main__ import main; main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings(), check=True)
    assert "fedavg" in ran.stdout or "mnist" in ran.stdout
    assert ran.stderr == "False\n"
