"""The messages of the FAQ are those that its commands print, in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.terminal import imperfed

PAGE = Path(__file__).parents[2] / "docs" / "faq.md"
SHORTENED = " [...]"


def dialogue() -> list[tuple[str, str]]:
    """Every command of the page, and what stands below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [(one.partition("\n")[0], one.partition("\n")[2]) for text in blocks for one in text.split("$ ")[1:]]


def test_every_message_is_what_its_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    told = 0
    for command, shown in dialogue():
        if not command.startswith("imperfed "):
            subprocess.run(command, shell=True, check=True)
            continue
        said = imperfed(*shlex.split(command)[1:])
        assert (said.code == 0) == (not shown), command
        if shown:
            begins, _, rest = shown.partition(SHORTENED)
            assert (said.err[: len(begins)] if rest else said.err) == begins, command
            told += 1
    assert told > 15
