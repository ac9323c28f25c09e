"""The figures of the pages on ranks, many sites and large data are those of the result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scale import fill


@pytest.mark.parametrize("name", fill.PAGES)
def test_a_page_has_the_figures_of_its_files(name: str) -> None:
    page = (fill.DOCS / name).read_text(encoding="utf-8")
    assert fill.filled(page) == page
    assert all("| --- |" in found[0] for found in fill.BLOCK.finditer(page))


def test_every_part_is_on_one_page() -> None:
    pages = [(fill.DOCS / name).read_text(encoding="utf-8") for name in fill.PAGES]
    assert sorted(found[2] for page in pages for found in fill.BLOCK.finditer(page)) == sorted(fill.PARTS)


def test_what_a_file_says_is_written_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ranks.json"
    rows = [("b", "x", [], 0.0), ("a", "x", ["w"], 0.0), ("a", "y", ["buffers"], 2.5e-7), ("c", "x", [], 1e-6)]
    names = ("method", "objective", "one by one", "gap")
    work = {"seconds": 1.234, "ratio": 1.05, "processor_ratio": 0.999, "rounds": 7, "cores_taken_by_others": 0.31}
    work |= {"bytes_per_round": {"sums": 1.5e6, "server's memory": 5e5}, "largest_difference": 2e-7}
    found = {"methods": [dict(zip(names, row, strict=True)) for row in rows], "works": {"W1": {"2": work}}}
    file.write_text(json.dumps(found))
    for part in ("methods", "works"):
        monkeypatch.setitem(fill.PARTS, part, (file, fill.PARTS[part][1]))
    marked = "above\n<!-- scale methods -->\nold\n<!-- end -->\nbetween\n<!-- scale works -->\n<!-- end -->\nbelow\n"
    page = fill.filled(marked)
    assert "old" not in page
    assert page.startswith("above\n<!-- scale methods -->\n\n| method |")
    assert page.endswith("<!-- end -->\nbelow\n")
    lines = page.splitlines()
    methods = [line for line in lines if line.startswith("| `")]
    assert methods == ["| `a` | `buffers`, `w` | 2.5e-07 |", "| `b` | nothing | equal |", "| `c` | nothing | 1.0e-06 |"]
    assert "| W1 | 2 | 1.2 | 1.05 | 1.00 | 2 | 2.0e-07 | 7 | 0.3 |" in lines


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0123, "0.012"), (3.14159, "3.1"), (31.4159, "31.4"), (1234.5, "1,234")]
)
def test_numbers_have_as_many_digits_as_count(value: float, shown: str) -> None:
    assert fill.number(value) == shown
