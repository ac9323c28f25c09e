"""The commands of the first pages run on a machine without any data, in the order in which a page has them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.one_family import try_one_family
from tests.support.terminal import done

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/own-files.md", "docs/audit.md", "docs/auto.md", "examples/README.md")
TRAINS = {"run", "compare"}
NEEDS = ("keys", "serve", "join", "predict", "resume")
"""Commands that need another machine or a run's folder, whose name holds the time."""
QUICK = ("--rounds", 1, "--workers", 1, "--set", "epochs=0", "--set", "steps=1")


def commands(page: str) -> list[list[str]]:
    """The words of every command of a page, in blocks without output and in tables, but for the demo."""
    text = (ROOT / page).read_text(encoding="utf-8").partition("## From real datasets")[0]
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.M | re.S)
    cells = re.findall(r"^\|.*?`(imperfed [^`]*)`", text.partition("## Next steps")[2], re.M)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()] + cells
    found = [shlex.split(line) for line in lines if line.startswith("imperfed ")]
    return [words[1:] for words in found if words[1] not in NEEDS and words != ["imperfed", "run"]]


@pytest.fixture(autouse=True)
def small_and_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder; of what sites fit alone, try the fastest family only; draw no page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try_one_family(monkeypatch)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_without_data(page: str) -> None:
    assert any(words[0] == "example" for words in commands(page))
    ran: set[tuple[Any, ...]] = set()
    for words in commands(page):
        if words[0] in TRAINS:
            words = [word for word in words if not re.fullmatch(r"--(budget|rounds)|\d+", word)]
            words += map(str, QUICK)
            searches = words[1] in ("auto", "--data")
            words += ["--budget", "0.002"] if searches else ["--no-alone"] * (words[0] == "compare")
        if tuple(words) not in ran:  # a page may name a command twice
            done(*words)
            ran.add(tuple(words))
