"""What a defence thought of the sites, in the run's files."""

from __future__ import annotations

from imperfed.core.context import SiteVerdict
from imperfed.results.defence_summary import DefenceSummary, LeftOut
from imperfed.results.site_verdicts import figures, sentences, summarise, table

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
    found = table(records(ROUNDS), "one")
    assert found["round"] == [1, 1, 1, 2, 2, 3, 3, 3]
    assert found["site"] == ["a", "b", "c", "a", "c", "a", "b", "c"]
    assert found["by"] == ["one"] * 8
    assert found["score"] == [0.5, None, 0.1, 0.6, 0.9, 0.7, 0.2, 0.3]
    assert found["confidence"] == [0.45, 0.5, 0.55, 0.4, 0.49, 0.36, 0.55, 0.54]
    assert found["out"] == [True, False, False, True, True, True, False, False]


def test_who_is_out_in_the_end_and_since_when():
    summary = summarise(table(records(ROUNDS), "one"), None)
    assert summary == DefenceSummary((LeftOut("a", since=1, score=0.7, confidence=0.36),), ever_out=("a", "c"))
    assert sentences(summary) == ["left out by the defence: a (since round 1)", "left out for a time: c"]


def test_a_site_that_came_back_and_was_left_out_again():
    again = [*ROUNDS, [SiteVerdict(2, 0.9, 0.48, True)], [SiteVerdict(2, 0.9, 0.43, True)]]
    summary = summarise(table(records(again), "one"), None)
    assert summary is not None
    assert [(one.site, one.since) for one in summary.out] == [("a", 1), ("c", 4)]


def test_false_alarms_are_counted_where_the_adversaries_are_known():
    wrong, right = (summarise(table(records(ROUNDS), "one"), [adversary]) for adversary in "ba")
    assert wrong is not None
    assert right is not None
    assert (wrong.false_alarms, wrong.missed) == (("a",), ("b",))
    assert "false alarms a; missed b" in sentences(wrong)[-1]
    assert (right.false_alarms, right.missed) == ((), ())
    assert "false alarms none; missed none" in sentences(right)[-1]


def test_without_a_defence_nothing_is_told():
    assert summarise(table(records([]), "one"), ["a"]) is None
    nobody = summarise(table(records([[SiteVerdict(0, 0.1, 0.5, False)]]), "one"), None)
    assert nobody is not None
    assert sentences(nobody) == ["left out by the defence: nobody"]


TWO = [
    [SiteVerdict(0, 0.5, 0.45, True, "x"), SiteVerdict(0, 2.0, 1.0, False, "y"), SiteVerdict(1, 0.1, 0.6, False, "x")],
    [SiteVerdict(0, 0.4, 0.55, False, "x"), SiteVerdict(0, 9.0, 0.1, True, "y"), SiteVerdict(1, 5.0, 0.4, True, "y")],
]


def test_of_several_defences_each_says_what_it_thinks():
    found = table(records(TWO), "x+y")
    assert found["by"] == ["x", "y", "x", "x", "y", "y"]
    assert found["score"] == [0.5, 2.0, 0.1, 0.4, 9.0, 5.0]
    assert [metric for _, metric, _ in figures(TWO[0][:1], SITES)] == [
        "defence/score/x",
        "defence/confidence/x",
        "defence/out/x",
    ]


def test_a_site_is_out_as_long_as_any_defence_excludes_it():
    summary = summarise(table(records(TWO), "x+y"), None)
    assert summary is not None
    assert summary.out == (LeftOut("a", 1, 9.0, 0.1, "y"), LeftOut("b", 2, 5.0, 0.4, "y"))
    assert sentences(summary) == ["left out by the defence: a (since round 1, by y), b (since round 2, by y)"]
    both = summarise(table(records([*TWO, [SiteVerdict(0, 0.6, 0.3, True, "x"), *TWO[1][1:]]]), "x+y"), None)
    assert both is not None
    assert both.out[0] == LeftOut("a", 1, 9.0, 0.1, "x and y")
