"""The pages about adding something: their files are complete, and their commands run with them."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imperfed.core.registry import entry_points
from imperfed.data.sources import sources
from tests.support.one_family import try_one_family
from tests.support.plugged import distribution
from tests.support.terminal import done

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("new-*.md") if 'python title="' in path.read_text(encoding="utf-8"))
BLOCK = re.compile(r'^```(?:python title="([\w.]+)"|\w*)\n(.*?)^```$', re.M | re.S)
SMALL = ("--rounds", "1", "--workers", "1", "--set", "steps=1", "--set", "epochs=0")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, from which nothing that a page defines stays known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    try_one_family(monkeypatch)
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if not name.startswith(("imperfed", "tests")) and "." not in name:
            sys.modules.pop(name)


def test_every_extension_point_has_a_page_with_a_file() -> None:
    named = re.findall(r"\]\((new-[\w-]+\.md)\)", (DOCS / "extending.md").read_text(encoding="utf-8"))
    assert {*PAGES} == {*named} - {"new-label-kind.md"}  # whose example is a test: tests/core/test_new_kind.py


@pytest.mark.parametrize("page", PAGES)
def test_the_files_of_a_page_run_as_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    for name, code in blocks:
        if name:
            (tmp_path / name).write_text(code)
    if entry := re.search(r'entry-points."imperfed\.(\w+)"\]\n(\w+) = "((\w+):\w+)"', text):
        monkeypatch.syspath_prepend(tmp_path)
        distribution(tmp_path, entry[4], (tmp_path / f"{entry[4]}.py").read_text(), **{entry[1]: {entry[2]: entry[3]}})
        forget()
    lines = [line for name, block in blocks if not name for line in block.splitlines()]
    ran = [run(shlex.split(line)) for line in lines if line.startswith(("imperfed", "python"))]
    assert ran
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Forget which datasets there are."""
    for known in (entry_points, sources):
        known.cache_clear()


def run(words: list[str]) -> None:
    """Run one command, with as little training as there can be."""
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    elif words[1] in ("run", "compare"):
        kept = re.sub(r"--(rounds|seeds) \S+", "", shlex.join(words[1:]))
        done(*shlex.split(kept), *SMALL, *["--no-alone"] * (words[1] == "compare" and "--no-alone" not in words))
    else:
        done(*words[1:])
