"""What the report says about rows that the sites hold out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.made_run import make, text

BEST = {"figure": "consistency", "round": 2, "score": 0.815, "rows": 7, "kept": True, "early": True}


def page(folder: Path, **changes: Any) -> str:
    """The report of a run that ended after two of three rounds, unless changed; the validation scores are 71 and 82."""

    def change(s: dict[str, Any]) -> None:
        s["validation"] = BEST | changes
        s["rounds"] = 3 if not s["validation"]["early"] else 2
        s["facts"]["held_out_rows"] = [5, 2]

    run = make(folder, change)
    with (run.path / "metrics.jsonl").open("a") as f:
        for number, value in enumerate((0.71, 0.82), 1):
            for site in ("north", "*"):
                line = {"round": number, "site": site, "metric": "validation/consistency", "value": value, "n": 6}
                f.write(json.dumps(line) + "\n")
    return text(run)


def test_the_best_round_and_why_the_run_ended(tmp_path: Path) -> None:
    said = page(tmp_path)
    assert "not finished" not in said
    assert "2 of 3 rounds" in said
    best = "Best of 2 rounds by 7 rows held out: round 2 (consistency 81.50 %); the results are those of that round"
    assert f"{best}; ended early, since no later round was better." in said
    assert "against the labels as given, without their truth; total weight 6." in said
    assert "The sites hold out 7 further rows of their own, with the labels as given, to judge rounds by." in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"early": False, "round": 3}, "the results are those of that round."),
        ({"early": False, "kept": False}, "the results are those of the last round."),
        ({"early": False, "round": 0, "score": None, "kept": False}, "7 rows held out say nothing about any model"),
    ],
)
def test_other_endings(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in page(tmp_path, **changes)


def test_figures_are_those_of_the_round_that_is_kept(tmp_path: Path) -> None:
    assert "test rows at 2 sites, round 2 weighted" in page(tmp_path / "kept", early=False)
    assert "test rows at 2 sites weighted" in page(tmp_path / "last", early=False, kept=False)


def test_nothing_is_said_where_nothing_is_held_out(tmp_path: Path) -> None:
    assert "held out" not in text(make(tmp_path))
