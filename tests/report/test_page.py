"""The report as a page: sound, alone, small, the same when written again, and quickly made."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from imperfed.experiments.resolving import resolve
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from imperfed.report import write_report
from tests.support.made_run import make, rounds_of, source, text


class Check(HTMLParser):
    """Collects what may be wrong with a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.faults: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag == "svg" and not given.get("aria-labelledby"):
            self.faults.append("a figure without words")
        if tag == "th" and "scope" not in given:
            self.faults.append("a header of nothing")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:image/png;base64,")):
                self.faults.append(f"{name}={value}")
        if tag in ("script", "link", "iframe", "b"):
            self.faults.append(f"a {tag}")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag != "meta":
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> out of place")


def test_page_is_sound_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = source(make(tmp_path))
    check = Check(page)
    assert not check.faults
    assert not check.open
    assert len(set(check.ids)) == len(check.ids)
    references = re.findall(r'(?:url\(|href=")#([^")]+)', page)
    assert references
    assert set(references) <= set(check.ids)
    assert "http" not in page.replace(html.escape(str(tmp_path)), "")
    assert page.count("<svg") == 7


def test_curves_show_mean_and_range_of_the_sites(tmp_path: Path) -> None:
    from matplotlib.axes import Axes

    with (
        patch.object(Axes, "fill_between", autospec=True, side_effect=Axes.fill_between) as band,
        patch.object(Axes, "plot", autospec=True, side_effect=Axes.plot) as line,
    ):
        page = source(make(tmp_path))
    assert ">accuracy, mean over sites in per cent: 20 after round 1, 60 after round 3</title>" in page
    low, high = band.call_args_list[0].args[2:4]
    np.testing.assert_allclose([low, high], [[50 / 3, 100 / 3, 50], [70 / 3, 140 / 3, 70]])
    mean, common = (call.args[2] for call in line.call_args_list[:2])
    np.testing.assert_allclose([mean, common], [[20, 40, 60], [62.5 / 3, 125 / 3, 62.5]])


def test_large_label_spaces_stay_small(tmp_path: Path) -> None:
    def change(s: dict[str, Any]) -> None:
        s["classes"] = [f"a class with a rather long name {c}" for c in range(120)]
        s["labels"]["together"] = s["labels"]["mistaken"] = (1 - np.eye(120, dtype=int)).tolist()
        s["facts"]["counts"] = [[1, 2]] * 120

    page = source(make(tmp_path, change))
    assert len(page) < 400_000
    shown = re.findall(r">(a class with a[^<]*)</text>", page)
    assert len(shown) == 5 * 24  # every fifth, along both sides of two maps and one side of the third
    assert max(map(len, shown)) == 16


def test_names_with_markup_or_dollars_are_only_text(tmp_path: Path) -> None:
    page = source(make(tmp_path))
    assert "a<b>" not in page
    assert 'a&lt;b&gt;&amp;"c" $x_1$'[:20] in page


def test_written_anew_it_is_the_same_and_leaves_nothing_beside(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = {p.name for p in folder.path.iterdir()}
    first = source(folder)
    assert source(folder) == first
    assert {p.name for p in folder.path.iterdir()} - before == {"report.html"}


def test_files_of_a_real_run(tmp_path: Path) -> None:
    words = {"method": "pfedpll", "data": "digits", "rounds": 2, "sites": 2, "steps": 2, "workers": 1}
    folder, summary = start(resolve(words=words), tmp_path, Watch())
    page = text(folder)
    assert summary.personal.mean is not None
    assert summary.labels is not None
    assert summary.labels.accuracy is not None
    assert f"accuracy, mean over sites {100 * summary.personal.mean:.2f} %" in page
    assert f"({100 * summary.labels.accuracy:.2f} %)" in page
    assert not Check(source(folder)).faults


def test_hundred_rounds_of_ten_sites_take_less_than_three_seconds(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.write(
        "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in rounds_of({f"s{k}": 9 for k in range(10)}, 100, 100))
    )
    begun = time.process_time()
    write_report(folder)
    assert time.process_time() - begun < 3


def test_heavy_imports_wait_until_a_report_is_written() -> None:
    check = "import sys, imperfed.report; sys.exit(bool({'matplotlib', 'jinja2', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
