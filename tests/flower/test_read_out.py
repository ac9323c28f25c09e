"""What a coordinator could read out of a site by asking for sums over other rows, run after run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imperfed.data.files.declaration import parse
from imperfed.engine.failures import Undecided
from imperfed.flower.messages.payload import REPAIR, Payload
from imperfed.flower.site.joining import Consent
from imperfed.flower.site.reading_ledger import ReadingLedger
from imperfed.flower.site.runtime import LocalSite
from tests.support.asked_site import DECLARED, ROWS, TRUE, asked, greeting, reason, site_of


def rows_recovered(place: LocalSite, stand_in: Path, splits: list[dict[str, Any]]) -> int:
    """Return how many rows follow from the sums over subsets that a coordinator can work out for itself."""
    numbers = site_of(stand_in, np.c_[np.arange(ROWS), np.zeros(ROWS)])
    members, sums = [], []
    for n, split in enumerate(splits):
        run_info = greeting(f"run{n}", **split)
        answer = asked(place, "query.hello", run_info)
        if isinstance(answer, Payload):
            sums.append(answer.trees["sums"]["sum"].numpy())
            rows = numbers.files(run_info.config(), DECLARED).x[:, 0].long().numpy()
            members.append(np.isin(np.arange(ROWS), rows).astype(float))
    differences = np.linalg.lstsq(np.array(members), np.array(sums), rcond=None)[0]
    return int((np.abs(differences - TRUE).max(1) < 1e-3).sum())


SEEDS = [{"run.data_seed": seed, "split.test": 0.4} for seed in range(60)]
SHARES = [{"split.test": 0.01 + n / ROWS} for n in range(ROWS - 12)]


@pytest.mark.parametrize("splits", [SEEDS, SHARES], ids=["seeds", "shares"])
def test_sums_over_other_splits_give_no_rows_away(splits: list[dict[str, Any]], tmp_path: Path) -> None:
    """Before, 60 messages gave 40 of 40 rows, exactly; two that differ in one row give this one."""
    assert rows_recovered(site_of(tmp_path / "guarded"), tmp_path / "own", splits) == 0
    open_to_all = site_of(tmp_path / "open", most_readings=100)
    assert rows_recovered(open_to_all, tmp_path / "own", splits) > 25  # the attack itself works


def test_values_declared_missing_give_no_values_away(tmp_path: Path) -> None:
    """With test rows of its own the seed chooses no rows, but a declaration leaves out the values that it names."""

    def found(place: LocalSite) -> set[int]:
        ages = set()
        for age in range(30, 90):
            words = f'numeric = ["age", "income"]\nmissing = ["{age}"]\nfill = "mean"'
            declaration = DECLARED.replace('numeric = ["age", "income"]', words)
            answer = asked(place, "query.hello", greeting(f"run{age}", declaration))
            if isinstance(answer, Payload) and int(answer.trees["sums"]["count"][0]) < ROWS:
                ages.add(age)
        return ages

    assert found(site_of(tmp_path / "guarded", test=True)) == set()
    assert found(site_of(tmp_path / "open", test=True, most_readings=100)) == {*range(40, 80)}


def test_another_reading_is_refused_with_what_differs_and_what_to_do(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    assert isinstance(asked(place, "query.hello", greeting("first")), Payload)
    assert reason(asked(place, "query.hello", greeting("second", **{"run.data_seed": 1}))) == (
        "north refuses run.data_seed = 1 instead of 0: for first its rows were read or split otherwise, and the "
        "difference of two answers can be a single row. Ask as for first, or ask the site to allow it "
        "(most_readings = 1)"
    )
    narrower = DECLARED.replace('"age", ', "")
    assert "refuses the declaration (federation.toml); split.test = 0.3 instead of 0.2: for first" in reason(
        asked(place, "query.hello", greeting("third", narrower, **{"split.test": 0.3}))
    )
    for kind in ("query.ready", "train", "evaluate", "query.count"):  # whatever is asked first
        assert "most_readings" in reason(asked(place, kind, greeting("fourth", narrower)))


def test_honest_runs_one_after_the_other_need_no_permission(tmp_path: Path) -> None:
    """Other methods, models and seeds; other files of the coordinator; a run that holds rows out, and one without."""
    place = site_of(tmp_path)
    elsewhere = replace(parse(DECLARED), sites="elsewhere/*.csv", public="public.csv", name="clinics").toml()
    for n, (declaration, settings) in enumerate(
        [
            (DECLARED, {}),
            (DECLARED, {"method": "fedprox", "run.seed": 7}),
            (elsewhere, {"model": "mlp", "batch": 16}),
            (DECLARED, {"split.validation": 0.2}),
            (DECLARED, {}),
        ]
    ):
        assert isinstance(asked(place, "query.hello", greeting(f"run{n}", declaration, **settings)), Payload), n
    assert "split.validation = 0.25: for run0 and later runs it was 0.2" in reason(
        asked(place, "query.hello", greeting("later", **{"split.validation": 0.25}))
    )


def test_a_policy_or_a_person_allows_another_reading(tmp_path: Path) -> None:
    other = {"run.data_seed": 1}
    place = site_of(tmp_path / "two", most_readings=2)
    for n, seed in enumerate((0, 1)):
        assert isinstance(asked(place, "query.hello", greeting(f"run{n}", **{"run.data_seed": seed})), Payload)
    assert "most_readings = 2" in reason(asked(place, "query.hello", greeting("run2", **{"run.data_seed": 2})))

    place = replace(site_of(tmp_path / "person"), accepts=False)
    questions: list[str] = []
    consent = Consent(place.state, lambda question: not questions.append(question))  # type: ignore[func-returns-value]
    for run, settings in (("run0", {}), ("run1", other)):
        assert isinstance(asked(place, "query.hello", greeting(run, **settings)), Undecided)
        consent.seek()
        assert isinstance(asked(place, "query.hello", greeting(run, **settings)), Payload)
    assert questions == ["take part in run0?", "take part in run1?"]
    log = (place.state / "log.txt").read_text()
    assert log.count("NOT as before; a yes allows it all the same: run.data_seed = 1 instead of 0") == 1
    unattended = replace(place, accepts=True)
    assert "most_readings" in reason(asked(unattended, "query.hello", greeting("run2", **{"run.data_seed": 2})))


def test_a_question_that_waits_is_not_answered_by_accept(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    asked(place, "query.hello", greeting("run0"))
    other = greeting("run1", **{"run.data_seed": 1})
    assert isinstance(asked(replace(place, accepts=False), "query.hello", other), Undecided)
    assert "most_readings" in reason(asked(place, "query.hello", other))


def test_a_declaration_with_a_mistake_may_be_mended_some_times(tmp_path: Path) -> None:
    """It gives nothing away but that it failed, which may be said ten times."""
    place = site_of(tmp_path)
    for n in range(12):
        wrong = DECLARED.replace('"age"', f'"age{n}"')
        said = reason(asked(place, "query.hello", greeting(f"run{n}", wrong)))
        assert ("its log says why" in said) == (n < 10)
    assert "10 came to nothing (most_readings = 1)" in said
    place = site_of(tmp_path / "again")
    asked(place, "query.hello", greeting("run0", DECLARED.replace('"age"', '"agee"')))
    assert isinstance(asked(place, "query.hello", greeting("run1")), Payload)


def test_a_search_keeps_its_rows(tmp_path: Path) -> None:
    """Settings vary from trial to trial, and neither the split nor the declaration does."""
    place = site_of(tmp_path)
    held_out = {"split.validation": 0.25}
    search = replace(greeting(**held_out), search=True)
    assert isinstance(asked(place, "query.hello", search), Payload)
    for changed in ({"run.data_seed": 3}, {"split.test": 0.25}, {"split.validation": 0.3}):
        other = replace(search, settings=greeting(**held_out | changed).settings)
        assert next(iter(changed)) in reason(asked(place, "query.hello", other))
    assert isinstance(asked(place, "query.hello", replace(search, settings=greeting().settings)), Payload)


def test_few_rows_are_not_the_difference_of_two_answers(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    two = {"split.validation": 0.06}  # 2 of 32
    assert "all but 2 of them" in reason(asked(place, "query.hello", replace(greeting("a", **two), search=True)))
    place = site_of(tmp_path / "later")
    assert isinstance(asked(place, "query.hello", greeting("a", **two)), Payload)
    assert "all but 2 of them" in reason(asked(place, "query.hello", greeting("b")))


def test_an_audit_of_all_rows_and_a_run_with_test_rows_go_together(tmp_path: Path) -> None:
    """In either order, once; their difference is the test rows, which must be enough for a sum."""
    audit, run = {"repair": "posterior", "split.test": 0}, {"split.test": 0.2}
    for name, order in (("a", (audit, run, audit)), ("b", (run, audit, run))):
        place = site_of(tmp_path / name, np.r_[TRUE, TRUE + 500])
        for n, settings in enumerate(order):
            assert isinstance(asked(place, "query.hello", greeting(f"run{n}", **settings)), Payload), (name, n)
        for kind in ("query.hello", "train"):
            assert "split.test = 0.3 instead of" in reason(asked(place, kind, greeting("more", **{"split.test": 0.3})))
    for n, order in enumerate(((audit, run), (run, audit))):
        place = site_of(tmp_path / f"few{n}")
        assert isinstance(asked(place, "query.hello", greeting("first", **order[0])), Payload)
        assert "the difference would rest on 8 rows" in reason(
            asked(place, "query.hello", greeting("next", **order[1]))
        )
    words = {"round": REPAIR, "exchange": 0, "trusted": 0}
    later = asked(place, "query.answer", greeting("later", **audit), words, down={})  # without a hello
    assert "the difference would rest on 8 rows" in reason(later)


def test_there_is_an_end_to_runs(tmp_path: Path) -> None:
    place = site_of(tmp_path, most_runs=3)
    for n in range(3):
        assert isinstance(asked(place, "query.hello", greeting(f"run{n}")), Payload)
    assert "one more run: it has taken part in 3 with this state folder (most_runs)" in reason(
        asked(place, "query.hello", greeting("run3"))
    )
    assert isinstance(asked(place, "query.hello", greeting("run1")), Payload)


def test_a_method_that_leaves_rows_out_of_a_batch_still_rests_on_enough(tmp_path: Path) -> None:
    """With `forget_rate = 0.99` every step was one row of the batch: that of smallest loss, which weights choose."""
    place = site_of(tmp_path)
    assert isinstance(asked(place, "query.hello", greeting("published", method="rofl")), Payload)
    for run, words in (("one", {"batch": 32}), ("all", {"batch": 1000})):
        rofl = greeting(run, method="rofl", **{"method.forget_rate": 0.99} | words)
        assert "of which rofl leaves out up to 99%, and this site asks for 4 or more (rows_per_step)" in reason(
            asked(place, "query.hello", rofl)
        )


def test_what_was_read_is_noted_before_it_is_answered(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    asked(place, "query.hello", greeting())
    (kept,) = ReadingLedger.read(place.state).kept
    assert (kept.run, kept.given, kept.held_out) == ("run", True, (0.0,))
