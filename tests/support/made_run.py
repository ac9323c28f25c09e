"""A run's folder made by hand, and its report as source or as words."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from imperfed.experiments.resolving import resolve
from imperfed.report import plots, write_report
from imperfed.results.folder import RunFolder

Change = Callable[[dict[str, Any]], object]
CLASSES = ["cat", "lynx", 'a<b>&"c" $x_1$']
GIVEN = {"north": ["cat", "cat|lynx", "cat|lynx"], "south": ["cat|lynx|" + CLASSES[2]]}


def summary() -> dict[str, Any]:
    """A run of two sites whose every figure differs from every other."""
    return {
        "title": "pfedpll",
        "method": "pfedpll",
        "objective": "lcp",
        "data": "felines",
        "seed": 3,
        "data_seed": 5,
        "seconds": 12.34,
        "sent": {"w": [40], "scores": [2, 7], "loss": []},
        "rounds": 3,
        "metric": "accuracy",
        "personal": {"mean": 0.6, "weighted": 0.66, "worst": 0.5, "n": 50},
        "global": {"accuracy": {"value": 0.625, "n": 80}},
        "sites": [
            {"site": "north", "train": 3, "test": 10, "value": 0.5, "labels": 2 / 3},
            {"site": "south", "train": 1, "test": 40, "value": 0.7, "labels": 1.0},
        ],
        "account": {},
        "input": [4],
        "features": 0,
        "standardised": False,
        "classes": CLASSES,
        "labels": {
            "kind": "candidates",
            "accuracy": 0.75,
            "picking_at_random": 0.5833,
            "mean_confidence": 0.8,
            "n": 4,
            "together": [[0, 3, 1], [3, 0, 1], [1, 1, 0]],
            "mistaken": [[0, 1, 0], [0, 0, 0], [0, 0, 0]],
        },
        "facts": {
            "labels": "candidates",
            "sets": "given",
            "rows": [3, 1],
            "test_rows": [10, 40],
            "common_test_rows": 80,
            "rows_left_out": 9,
            "public_rows": 6,
            "public_from": "the official test set",
            "mean_size": 2.0,
            "min_size": 1,
            "max_size": 3,
            "singletons": 0.25,
            "counts": [[2, 0], [1, 1], [0, 0]],
            "classes_at_nobody": [CLASSES[2]],
        },
    }


def rounds_of(sites: dict[str, int], rounds: int, planned: int) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl` in which site k's accuracy rises to 0.5 + k / 5, at most 1, as planned."""
    lines: list[dict[str, Any]] = []
    for r in range(1, rounds + 1):
        at: dict[str, Any] = {"round": r}
        lines += [at | {"site": s, "metric": "train/loss", "value": 2.0 / r} for s in sites]
        for k, (s, n) in enumerate(sites.items()):
            value = min(1.0, 0.5 + k / 5) * r / planned
            lines.append(at | {"site": s, "metric": "test/personal/accuracy", "value": value, "n": n})
        lines.append(at | {"site": "*", "metric": "test/global/accuracy", "value": 0.625 * r / planned, "n": 80})
        lines.append(at | {"site": "*", "metric": "bytes/down", "value": 4000})
        lines.append(at | {"site": "*", "metric": "bytes/up", "value": 1500})
        lines.append(at | {"site": "*", "metric": "sent/w", "value": 40, "shape": [40]})
    return lines


def make(tmp_path: Path, change: Change | None = lambda s: None, rounds: int = 3) -> RunFolder:
    """A run's folder as a run leaves it, with a changed summary or, for None, without one."""
    folder = RunFolder.create(
        tmp_path, resolve(words={"method": "pfedpll", "rounds": 3, "seed": 3, "data_seed": 5}), {"device": "cpu"}
    )
    folder.append(rounds_of({"north": 10, "south": 40}, rounds, planned=3))
    folder.save_table("split.parquet", {"id": list("abcd"), "site": ["north"] * 3 + ["south"]})
    if change is None:
        return folder
    told = summary()
    change(told)
    folder.write("summary.json", json.dumps(told))
    for site, given in GIVEN.items():
        folder.save_table(f"labels/{site}.parquet", {"given": given, "confidence": [0.8] * len(given)})
    return folder


def source(folder: RunFolder) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def text(folder: RunFolder) -> str:
    """The words of the page outside of figures, which are not drawn, and styles, with plain single spaces."""
    with patch.object(plots, "render", return_value=""):
        words = re.sub(r"<style>.*?</style>", " ", source(folder), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", words)).split())
