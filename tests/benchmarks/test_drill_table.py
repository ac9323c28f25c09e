"""What a drill saw, as it stands on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.drill import printed
from benchmarks.drill.consortium import Seen


def test_the_scenes_are_written_into_the_page_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "RESULTS", tmp_path / "drill.json")
    row = Seen("10^12 rows", "taken as said", "a | b <c>\nd", "e" * 500, "0", "none")
    printed.keep("second", [row], 12.3, {"packets": 5})
    printed.keep("first", [row._replace(fault="another")], 1.0, {})
    printed.keep("second", [row], 45.6, {"packets": 6})  # once more: in place of what was seen before
    page = printed.filled("above\n<!-- drill -->\nold\n<!-- end -->\nbelow", ["first", "second"])
    lines = page.splitlines()
    assert lines[0] == "above"
    assert lines[-1] == "below"
    assert "old" not in page
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")][2:] == [
        "| another",
        "| 10<sup>12</sup> rows",
    ]
    assert "a \\| b &lt;c> d" in page
    assert max(map(len, lines)) < 400
