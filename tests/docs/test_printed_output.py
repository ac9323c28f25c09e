"""What a page shows of a run is what the command prints today: the same lines, and figures that agree."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.support.terminal import done

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SLACK = 2.0
"""Points by which figures in per cent may differ, since machines round differently; counts may not."""


def script_and_run(page: str) -> tuple[str, str, list[str]]:
    """Return the script of a page that writes its file, its first command, and what it is said to print."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    script = next(text for language, text in blocks if language == "python" and "np.savez" in text)
    shown = next(text for _, text in blocks if text.startswith("$ imperfed run "))
    command, *printed = shown.splitlines()
    return script, command.removeprefix("$ imperfed "), printed


def without_progress(lines: list[str]) -> list[str]:
    """Return the lines that are neither about a round nor about the folder of the run."""
    end = next((number for number, line in enumerate(lines) if line.startswith("Written")), len(lines))
    return [line for line in lines[:end] if not line.startswith("round ")]


def agree(shown: str, printed: str) -> bool:
    """Say whether two lines differ in nothing but the last digits of figures."""
    figures = [(NUMBER.findall(line), NUMBER.sub("#", line).split()) for line in (shown, printed)]
    (ours, words), (theirs, others) = figures
    return words == others and all(
        abs(float(a) - float(b)) <= SLACK if "." in a or "%" in shown else a == b
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("page", ["candidate-sets.md", "missing-labels.md"])
def test_a_page_shows_what_its_command_prints(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, command, shown = script_and_run(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    (tmp_path / "file.py").write_text(script)
    runpy.run_path(str(tmp_path / "file.py"))
    printed = without_progress(done(*shlex.split(command), COLUMNS="80").out.splitlines())
    shown = without_progress(shown)
    assert len(shown) == len(printed)
    assert [(a, b) for a, b in zip(shown, printed, strict=True) if not agree(a, b)] == []


def test_lines_that_differ_are_seen() -> None:
    assert agree("│ site-0 │ 240 │ 94.73 │", "│ site-0 │ 240 │ 94.40 │")
    assert not agree("│ site-0 │ 240 │ 94.73 │", "│ site-0 │ 300 │ 94.73 │")
    assert not agree("│ site-0 │ 240 │ 94.73 │", "│ site-0 │ 240 │ 90.73 │")
    assert not agree("│ site-0 │ 240 │", "│ site-1 │ 240 │")
    assert not agree("auroc 94 %", "accuracy 94 %")
