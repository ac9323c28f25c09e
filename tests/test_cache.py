"""Where the cache is."""

from pathlib import Path

from imperfed.core.cache import cache_folder


def test_the_environment_names_it(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder("clean") == Path("/elsewhere/imperfed/clean")


def test_else_it_is_in_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder("features") == tmp_path / ".cache" / "imperfed" / "features"
    assert cache_folder() == tmp_path / ".cache" / "imperfed"
