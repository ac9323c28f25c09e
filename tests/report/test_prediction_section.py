"""The parts of the report on predictions for test rows: class by class, and how sure they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.made_run import CLASSES, make, source, text


def predicted(told: dict[str, Any], classes: list[str] = CLASSES) -> None:
    """Put 50 test rows in, of which class 1 is never predicted and class 2 has none."""
    told["classes"] = classes
    told["predictions"] = {
        "n": 50,
        "classes": [
            {"class": classes[0], "support": 19, "predicted": 48, "recall": 1.0, "precision": 19 / 48},
            {"class": classes[1], "support": 31, "predicted": 0, "recall": 0.0, "precision": None},
            *({"class": c, "support": 0, "predicted": 0, "recall": None, "precision": None} for c in classes[2:]),
        ],
        "confusion": [[19, *[0] * (len(classes) - 1)], [31, *[0] * (len(classes) - 1)]]
        + [[0] * len(classes)] * (len(classes) - 2),
    }
    told["calibration"] = {
        "temperature": None,
        "reason": "no rows are held out (split.validation)",
        "test": {
            "n": 50,
            "unit": "rows",
            "confidence": 0.96,
            "right": 0.63,
            "error": 0.33,
            "bins": [{"low": 0.9, "high": 1.0, "n": 50, "confidence": 0.96, "right": 0.63}],
        },
    }


def test_what_is_never_predicted_is_named(tmp_path: Path) -> None:
    shown = text(make(tmp_path, predicted))
    assert "Over 50 test rows of all sites, each by its own site's model. Lowest recall: lynx (0.00 %), cat" in shown
    assert "Never predicted: lynx (31 test rows)." in shown
    assert f"No test rows of: {CLASSES[2]}." in shown
    assert "class test rows predicted recall precision most often taken for lynx 31 0 0.00 % \N{EN DASH} cat" in shown


def test_confidence_is_said_in_figures(tmp_path: Path) -> None:
    shown = text(make(tmp_path, predicted))
    assert "Confidence on the test rows: 96 % on average, and 63 % of predictions are right (n = " in shown
    assert "points); not adjusted, since no rows are held out (split.validation)." in shown
    assert "On average the models are overconfident by 33.00 points." in shown

    def sure(told: dict[str, Any]) -> None:
        predicted(told)
        told["calibration"] |= {"temperature": 2.0, "rows": 12, "reason": ""}
        told["calibration"]["test"] |= {"confidence": 0.6}

    shown = text(make(tmp_path / "other", sure))
    assert "Confidence on the test rows: 60 % on average, and 63 % of predictions are right (n = " in shown
    assert "points); adjusted on the labels of 12 rows held out (temperature 2)." in shown
    assert "underconfident by 3.00 points" in shown


def test_both_are_drawn_with_words_for_those_who_cannot_see_them(tmp_path: Path) -> None:
    page = source(make(tmp_path, predicted))
    assert ">test rows by true and predicted class</title>" in page
    assert ">share of predictions that are right by confidence: 96 % sure, 63 % right</title>" in page
    assert "classes, the lowest recall first" not in page


def test_many_classes_are_folded(tmp_path: Path) -> None:
    names = [f"class {c}" for c in range(25)]

    def many(told: dict[str, Any]) -> None:
        predicted(told, names)
        told["labels"] = None
        told["facts"] |= {"counts": None, "classes_at_nobody": []}

    page = source(make(tmp_path, many))
    assert "<details><summary>All 25 classes, the lowest recall first</summary>" in page


def test_rows_that_all_sites_share_count_once(tmp_path: Path) -> None:
    def shared(told: dict[str, Any]) -> None:
        predicted(told)
        told["facts"]["common_test"] = True
        for site in told["sites"]:
            site["test"] = 50

    shown = text(make(tmp_path, shared))
    assert "n = 50 test rows at 2 sites" in shown
    assert "n = 100" not in shown
    assert "Over 50 test rows that all sites share: the mean over their models." in shown
