"""The first round that reaches a target, and the time until then."""

from __future__ import annotations

from typing import Any

from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.time_to_target import TargetReached, time_taken


def line(round: int, metric: str, value: float, site: str = "*") -> dict[str, Any]:
    return {"round": round, "site": site, "metric": metric, "value": value}


def sites(round: int, *values: float) -> list[dict[str, Any]]:
    return [line(round, "test/personal/accuracy", value, f"site-{k}") for k, value in enumerate(values)]


TIMES = [line(r, "seconds", s) for r, s in ((1, 1.5), (2, 0.25), (3, 1.0), (4, 8.0))]


def test_without_a_common_test_set_it_is_the_mean_over_sites():
    course = [*sites(1, 0.2, 0.4), *sites(3, 0.9, 0.7), *sites(4, 0.1, 0.1), *TIMES]
    expected = TargetReached(value=0.8, of="mean over sites", round=3, seconds=2.75)
    assert TargetReached.find(course, "accuracy", 0.8) == expected
    assert expected.sentence() == "80 % (mean over sites) was reached after round 3, 2.8 s of training"


def test_with_one_it_is_the_global_model():
    common = [line(r, "test/global/accuracy", v) for r, v in ((1, 0.3), (2, 0.5), (3, 0.79), (4, 0.8))]
    course = [*sites(1, 0.9, 0.9), *common, *TIMES]
    assert TargetReached.find(course, "accuracy", 0.8) == TargetReached(0.8, "global model", round=4, seconds=10.75)


def test_it_is_the_first_of_the_rounds_that_reach_it():
    course = [*sites(1, 0.5), *sites(2, 0.8), *sites(3, 0.6), *sites(4, 0.9), *TIMES, line(2, "seconds", 0.0004)]
    assert TargetReached.find(course, "accuracy", 0.8) == TargetReached(0.8, "mean over sites", round=2, seconds=1.75)
    ends = [*course, line(1, "seconds", 0.0014)]
    assert TargetReached.find(ends, "accuracy", 0.8).seconds == 1.752  # to the millisecond


def test_a_target_that_was_not_reached_has_no_round_and_no_time():
    none = TargetReached.find([*sites(1, 0.2, 0.4), *TIMES], "accuracy", 0.305)
    assert none == TargetReached(value=0.305, of="mean over sites", round=None, seconds=None)
    assert none.sentence() == "30.5 % (mean over sites) was not reached"
    assert TargetReached.find([], "accuracy", 0.5).round is None


def test_a_rounds_time_is_a_line_of_its_own():
    report = RoundReport(6, (), {}, {}, seconds=1.23456789)
    assert time_taken(report) == line(7, "seconds", 1.234568)
