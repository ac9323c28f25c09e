"""The tutorials run, and their notebooks and pages are what came out of the sources that are here."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import pytest

import imperfed
from imperfed import testing
from tools import tutorials

ALL = tutorials.names()


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train for one round with one seed, and draw into nothing. The contract has tests of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "compare"):
        call = getattr(imperfed, name)
        monkeypatch.setattr(imperfed, name, _small(call), raising=False)
    monkeypatch.setattr(testing, "check", lambda method: None)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    yield
    matplotlib.pyplot.close("all")
    matplotlib.use(backend)


def _small(call: Any) -> Any:
    def small(*words: Any, **settings: Any) -> Any:
        fewer = {"rounds": 1, "epochs": 0, "steps": 2, "workers": 1, "progress": False}
        return call(*words, **settings | fewer | ({"seeds": [0]} if "seeds" in settings else {}))

    return small


def source(name: str) -> str:
    return (tutorials.SOURCES / f"{name}.md").read_text(encoding="utf-8")


def test_the_tutorials_are_there() -> None:
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (tutorials.PAGES / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == ALL


@pytest.mark.parametrize("name", ALL)
def test_notebook_and_page_are_made_of_the_source(name: str) -> None:
    stored = nbformat.read(tutorials.PAGES / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    fresh = tutorials.notebook(source(name))
    assert [(cell.cell_type, cell.source) for cell in stored.cells] == [
        (cell.cell_type, cell.source) for cell in fresh.cells
    ]
    text, pictures = tutorials.page(name, stored)
    assert (tutorials.PAGES / f"{name}.md").read_text(encoding="utf-8") == text
    assert pictures
    assert {path.name for path in tutorials.PAGES.glob(f"{name}-?.png")} == {*pictures}
    assert all("![](" not in line for line in text.splitlines())  # every picture says what it shows
    ran = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert ran == [*range(1, len(ran) + 1)]
    assert not [line for line in text.splitlines() if "Warning" in line or "/tmp/" in line]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.usefixtures("quick")
def test_every_cell_runs(name: str) -> None:
    module = types.ModuleType("tutorial")  # where imports find the classes that it defines
    sys.modules["tutorial"] = module
    for block in tutorials.BLOCK.finditer(source(name)):
        exec(compile(ast.parse(block["code"]), name, "exec", dont_inherit=True), vars(module))
    del sys.modules["tutorial"]
