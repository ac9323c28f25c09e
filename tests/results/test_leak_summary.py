"""The findings of an attack, as sums over sites and in sentences."""

from __future__ import annotations

from msgspec.structs import replace

from imperfed.results.leak_summary import LeakSummary, SiteLeak

A = SiteLeak("a", 10, 20, 8, 2, 3, 1, 0.25, 0.75, 0.5, 0.9, 0.1, 0.4)
B = SiteLeak("b", 30, 60, 24, 0, 1, 0, 0.5, 0.25, 0.25, 0.8, 0.3, 0.2)
LEAK = LeakSummary("fedavg", "digits", "mlp", 3, 8, (4, 2), "sgd", 0.1, (A, B))


def test_sums_are_over_the_sites() -> None:
    assert (LEAK.rows, LEAK.recovered, LEAK.exact, LEAK.by_chance) == (40, 4, 2, 1)


def test_labels_count_by_visits() -> None:
    assert LEAK.labels() == ((0.1 * 20 + 0.3 * 60) / 80, (0.4 * 20 + 0.2 * 60) / 80)
    unknown = replace(A, labels_wrong=None, labels_guessed=None)
    assert replace(LEAK, sites=(unknown, B)).labels() == (0.3, 0.2)
    assert replace(LEAK, sites=(unknown,)).labels() is None


def test_the_setting_in_words() -> None:
    assert LEAK.setting() == "2 or 4 local steps of up to 8 rows, model mlp, fedavg on digits, round 3"
    assert replace(LEAK, steps=(1, 1), batch=1).setting().startswith("1 local step of up to 1 row, ")
    assert (
        replace(LEAK, steps=(0,), dishonest=True)
        .setting()
        .startswith("one gradient over all rows, model mlp with weights chosen to single out rows, ")
    )


def test_the_findings_in_words() -> None:
    found, distance, labels = LEAK.sentences()
    assert found == "Recovered: 4 of 40 rows that 2 sites visited, 2 of them exactly; by chance: 1."
    assert "from its row: 0.25 to 0.50," in distance
    assert distance.endswith("38 % are nearer to their row than to any row elsewhere; by chance 31 %.")  # by attempts
    assert labels == (
        "How many rows each class has: estimated with 25 % of rows wrong; guessing the mix elsewhere: 25 % of rows "
        "wrong."
    )
    assert replace(LEAK, also_sent=("c", "n")).sentences()[-1] == (
        "The sites also send c, n, which this attack does not look at."
    )
    assert replace(LEAK, nothing="No weights are sent").sentences() == ["No weights are sent."]
    assert str(LEAK).startswith("2 or 4 local steps")


def test_without_rows_elsewhere_there_is_no_guess_and_the_estimate_is_still_said() -> None:
    alone = replace(LEAK, sites=(replace(A, labels_wrong=0.0, labels_guessed=None),))
    assert alone.sentences()[2] == "How many rows each class has: known exactly."
    several = replace(LEAK, sites=(replace(A, labels_wrong=None, labels_guessed=None),))
    assert several.sentences()[2].startswith("Labels were not attempted")
