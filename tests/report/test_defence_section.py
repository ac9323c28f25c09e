"""The report's section on a defence."""

from __future__ import annotations

from pathlib import Path

from imperfed.results.folder import RunFolder
from tests.support.made_run import make, source, text

FOUND = {
    "out": [{"site": "north", "since": 2, "score": 0.4321, "confidence": 0.36}],
    "ever_out": ["north", "south"],
    "false_alarms": ["north"],
    "missed": [],
}


def defended(tmp_path: Path, known: bool = True) -> RunFolder:
    found = FOUND if known else {name: FOUND[name] for name in ("out", "ever_out")}
    folder = make(tmp_path, lambda s: s.update(suspicions=found))
    for r, out in ((1, 0.0), (2, 1.0), (3, 1.0)):
        for metric, value in (("score", 0.1 * r), ("confidence", 0.5), ("out", out)):
            folder.append([{"round": r, "site": "north", "metric": f"defence/{metric}", "value": value}])
    folder.append([{"round": 2, "site": "south", "metric": "defence/out", "value": 1.0}])
    return folder


def test_it_says_who_is_out_since_when_and_why(tmp_path: Path) -> None:
    page = text(defended(tmp_path))
    assert "Suspicions Left out by the defence: north (since round 2). Left out for a time: south." in page
    assert "The adversaries are known here: false alarms north; missed none." in page
    assert "At most 2 sites were left out in one round." in page
    assert "Left out at the end north: out since round 2, score 0.432, confidence 0.36" in page


def test_scores_and_confidences_are_drawn(tmp_path: Path) -> None:
    page = source(defended(tmp_path))
    assert "score of 1 sites by round, 1 of them left out at the end" in page
    assert "confidence of 1 sites by round, 1 of them left out at the end" in page


def test_nothing_is_said_of_adversaries_that_nobody_knows(tmp_path: Path) -> None:
    assert "false alarms" not in text(defended(tmp_path, known=False))


def test_without_a_defence_there_is_no_section(tmp_path: Path) -> None:
    assert "Suspicions" not in text(make(tmp_path))
    assert "Suspicions" not in text(make(tmp_path / "other", lambda s: s.update(suspicions=None)))


def test_what_a_defence_sees_every_round_is_no_event(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.log("round 1: fairfedpapl looked: cosine reached 0.91 (0.80 to 0.97)")
    folder.log("round 1: fairfedpapl: no score for site 2, left out of the split")
    page = text(folder)
    assert "cosine" not in page
    assert "no score for site 2" in page


def test_of_several_defences_each_is_drawn_and_named(tmp_path: Path) -> None:
    accused = {"site": "north", "since": 2, "score": 24.4, "confidence": 0.0, "by": "placebo"}
    folder = make(tmp_path, lambda s: s.update(suspicions={"out": [accused], "ever_out": ["north", "south"]}))
    for judge, site in (("fairfedpapl", "south"), ("placebo", "north"), ("placebo", "south")):
        for metric in ("score", "confidence", "out"):
            folder.append([{"round": 2, "site": site, "metric": f"defence/{metric}/{judge}", "value": 1.0}])
    page = text(folder)
    assert "At most 2 sites were left out in one round." in page
    assert "north: out since round 2 by placebo, score 24.400, confidence 0.00" in page
    assert "Score against each site, smoothed over rounds, by fairfedpapl" in page
    assert "The server's confidence in each site, by placebo" in page
