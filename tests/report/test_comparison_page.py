"""The pages of a comparison and of a sweep, from folders made by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from imperfed.report import comparison_page
from imperfed.report.comparison_page import write_comparison_page
from imperfed.report.sweep_page import write_sweep_page
from tests.support.made_comparison import compared, swept


def shown(page: Path) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page.read_text(encoding="utf-8")).split())


def test_no_interval_of_a_share_is_drawn_beyond_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two or three seeds, Student's t would have it reach from below 0 to above 100 %."""
    folder = compared(tmp_path)
    told = json.loads((folder / "results.json").read_text())
    for line in told["lines"]:
        line["interval"] |= {"low": -0.2, "high": 1.3}
    (folder / "results.json").write_text(json.dumps(told))
    drawn: dict[str, Any] = {}
    ranges = comparison_page.ranges
    monkeypatch.setattr(
        comparison_page,
        "ranges",
        lambda name, *words, **zero: drawn.update({name: words}) or ranges(name, *words, **zero),
    )
    write_comparison_page(folder)
    _, rows, _ = drawn["methods"]
    assert {(row.low, row.high) for row in rows} == {(0, 100)}
    _, gaps, _ = drawn["gaps"]
    assert min(row.low for row in gaps) < 0


def test_the_page_of_a_sweep_says_where_all_settings_of_the_choice_are(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    assert "All settings of the choice" not in shown(write_sweep_page(folder))  # none of its runs ended
    (folder / "runs.json").write_text(json.dumps([{"method": "cc", "seed": 0, "folder": "cc-digits"}]))
    text = shown(write_sweep_page(folder))
    assert "All settings of the choice are in cc-digits/config.toml, in this folder." in text
    assert "8 trials seeds 0, 1 chosen by" in text
    told = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(told | {"seeds": [1]}))
    assert "4 trials seed 1 chosen by" in shown(write_sweep_page(folder))
