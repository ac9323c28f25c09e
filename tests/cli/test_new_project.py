"""The project that `imperfed new method` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import done, imperfed, surroundings


def test_its_tests_pass(tmp_path: Path) -> None:
    out = done("new", "method", "far-away", "--out", tmp_path).out
    assert out.splitlines()[1] == str(tmp_path / "far-away" / "far_away.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "far-away",
        env=surroundings(PYTHONPATH=str(Path(__file__).parents[2])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout[-2000:] + ran.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Far Away", "small letters, digits and hyphens"),
        ("lambda", "small letters, digits and hyphens"),
        ("fedavg", "a method named 'fedavg' already"),
        ("json", "a Python module named 'json' already"),
    ],
)
def test_names_that_cannot_be(name: str, message: str, tmp_path: Path) -> None:
    said = imperfed("new", "method", name, "--out", tmp_path)
    assert said.code == 2
    assert message in said.err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "far-away").mkdir()
    assert "exists already" in imperfed("new", "method", "far-away", "--out", tmp_path).err
