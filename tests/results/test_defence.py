"""What a defence thought of the sites, in the run's files."""

from __future__ import annotations

from imperfed.core.context import SiteVerdict
from imperfed.results.defence import figures, table, told, verdict

SITES = ("a", "b", "c")
ROUNDS = [
    [SiteVerdict(0, 0.5, 0.45, True), SiteVerdict(1, None, 0.5, False), SiteVerdict(2, 0.1, 0.55, False)],
    [SiteVerdict(0, 0.6, 0.4, True), SiteVerdict(2, 0.9, 0.49, True)],
    [SiteVerdict(0, 0.7, 0.36, True), SiteVerdict(1, 0.2, 0.55, False), SiteVerdict(2, 0.3, 0.54, False)],
]


def records(rounds: list[list[SiteVerdict]]) -> list[dict]:
    return [{"round": 9, "site": "*", "metric": "bytes/up", "value": 3.0}] + [
        {"round": r, "site": site, "metric": metric, "value": value}
        for r, seen in enumerate(rounds, start=1)
        for site, metric, value in figures(seen, SITES)
    ]


def test_the_table_has_a_row_a_site_and_round():
    found = table(records(ROUNDS))
    assert found["round"] == [1, 1, 1, 2, 2, 3, 3, 3]
    assert found["site"] == ["a", "b", "c", "a", "c", "a", "b", "c"]
    assert found["score"] == [0.5, None, 0.1, 0.6, 0.9, 0.7, 0.2, 0.3]
    assert found["confidence"] == [0.45, 0.5, 0.55, 0.4, 0.49, 0.36, 0.55, 0.54]
    assert found["out"] == [True, False, False, True, True, True, False, False]


def test_who_is_out_in_the_end_and_since_when():
    found = verdict(table(records(ROUNDS)), None)
    assert found == {
        "out": [{"site": "a", "since": 1, "score": 0.7, "confidence": 0.36}],
        "ever out": ["a", "c"],
    }
    assert told(found) == ["left out by the defence: a (since round 1)", "left out for a time: c"]


def test_a_site_that_came_back_and_was_left_out_again():
    again = [*ROUNDS, [SiteVerdict(2, 0.9, 0.48, True)], [SiteVerdict(2, 0.9, 0.43, True)]]
    assert [(line["site"], line["since"]) for line in verdict(table(records(again)), None)["out"]] == [
        ("a", 1),
        ("c", 4),
    ]


def test_false_alarms_are_counted_where_the_adversaries_are_known():
    found = verdict(table(records(ROUNDS)), ["b"])
    assert found["false alarms"] == ["a"]
    assert found["missed"] == ["b"]
    assert "false alarms a; missed b" in told(found)[-1]
    right = verdict(table(records(ROUNDS)), ["a"])
    assert right["false alarms"] == right["missed"] == []
    assert "false alarms none; missed none" in told(right)[-1]


def test_without_a_defence_nothing_is_told():
    assert verdict(table(records([])), ["a"]) == {}
    assert told({}) == []
    assert told(verdict(table(records([[SiteVerdict(0, 0.1, 0.5, False)]])), None)) == [
        "left out by the defence: nobody"
    ]
