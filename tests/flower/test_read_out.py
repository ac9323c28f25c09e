"""What a coordinator could read out of a site by asking often: other splits, finer grids, more models, other kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from imperfed.data.files.declaration import parse
from imperfed.data.scale import Scale
from imperfed.data.site_files import SiteFiles
from imperfed.engine.failures import Declined, Failure, Undecided
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.flower.messages.payload import REPAIR, Payload, failure_of, pack
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site import handlers
from imperfed.flower.site.allowed_kinds import CONDITIONS, why_not
from imperfed.flower.site.handlers import HANDLERS, handle
from imperfed.flower.site.joining import Consent
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.reading_ledger import ReadingLedger
from imperfed.flower.site.rows_cache import digest_of
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.site_data import read_files

DECLARED = """
sites = "*.csv"
[inputs]
numeric = ["age", "income"]
[labels]
kind = "exact"
column = "sick"
classes = ["no", "yes"]
"""
ROWS = 40
TRUE = np.c_[np.arange(ROWS) + 40, 1000 * np.arange(ROWS) + 37].astype(float)


def table(rows: np.ndarray[Any, Any]) -> str:
    lines = (f"{a:.0f},{b:.0f},{('no', 'yes')[k % 2]}" for k, (a, b) in enumerate(rows))
    return "\n".join(["age,income,sick", *lines]) + "\n"


def site_of(folder: Path, rows: np.ndarray[Any, Any] = TRUE, test: bool = False, **policy: Any) -> LocalSite:
    folder.mkdir(parents=True, exist_ok=True)
    file, own = folder / "north.csv", folder / "test.csv" if test else None
    file.write_text(table(rows))
    if own is not None:
        own.write_text(table(TRUE[:12]))

    def read(config: Config, declared: str) -> SiteFiles:
        files = read_files("north", file, own, config, declared)
        return replace(files, digest=digest_of(files))

    allowed = SitePolicy(**policy)
    return LocalSite("north", read, folder / "state", b"s" * 32, policy=allowed, source=str(file), own_test=test)


def greeting(run: str = "run", declaration: str = DECLARED, **settings: Any) -> RunInfo:
    words = {"method": "fedavg", "model": "logistic", "batch": 8, "rounds": 3, "split.public": 0, "split.trusted": 0}
    return RunInfo(run, resolve(words=words | settings).toml(), declaration, 0, Scale.none(), {})


def asked(place: LocalSite, kind: str, run_info: RunInfo, words: Any = None, **trees: Any) -> Payload | Failure:
    reply = handle(place, kind, pack(run_info.payload(words, trees)))
    return failure_of(reply) or reply


def reason(answer: Payload | Failure) -> str:
    assert isinstance(answer, Failure), answer
    return answer.reason


# -- sums over other rows ----------------------------------------------------------------------------------------------


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


# -- kinds of messages -------------------------------------------------------------------------------------------------

RUNS: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": ({}, False),
    "search": ({}, True),
    "bins": ({"model": "mlp-ple"}, False),
    "audit": ({"repair": "posterior"}, False),
    "repair": ({"repair": "fb-nll"}, False),
    "sum": ({"privacy": "sum"}, False),
}
ONLY = {
    "query.count": {"search", "bins"},
    "query.unite": {"sum"},
    "query.answer, repair": {"audit", "repair"},
    "query.audit": {"audit"},
    "query.apply": {"search"},
    "query.agree": {"search"},
    "query.calibrate": {"search"},
    "query.alone": {"search"},
    "query.mix": {"search"},
    "query.settle": {"search"},
    "query.keep": {"search"},
    "query.judge": {"search"},
}
"""In which runs the kinds are answered that are not answered in all."""


@pytest.mark.parametrize("name", [*CONDITIONS])
def test_each_kind_of_message_is_answered_where_it_was_agreed_to(name: str, tmp_path: Path) -> None:
    kind, _, repair = name.partition(", ")
    words = {"round": REPAIR, "exchange": 0, "trusted": 0} if repair else {}
    for run, (settings, search) in RUNS.items():
        run_info = replace(greeting(run, **settings), search=search)
        why = why_not(kind, run_info.payload(words), run_info.settings, search)
        assert (why == "") == (run in ONLY.get(name, RUNS)), (run, why)
        if why:
            assert reason(asked(site_of(tmp_path / run), kind, run_info, words)) == f"north refuses {why}"


def test_a_kind_without_an_entry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name.partition(",")[0] for name in CONDITIONS} == {*HANDLERS}
    monkeypatch.setitem(handlers.HANDLERS, "query.rows", lambda place, payload: Payload({"rows": "all of them"}))
    place = site_of(tmp_path)
    assert reason(asked(place, "query.rows", greeting())) == (
        "north refuses query.rows: no agreement covers such a message"
    )
    for kind in ("train", "evaluate"):  # the exchanges of a repair have one name
        assert "no agreement covers" in reason(asked(place, kind, greeting(), {"round": REPAIR, "exchange": 0}))


def test_a_run_does_not_become_a_search(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    asked(place, "query.hello", greeting())
    assert "agreed to a run of one method under this name" in reason(
        asked(place, "query.alone", replace(greeting(), search=True))
    )
    assert "agreed to a run of one method under this name" in reason(
        asked(place, "evaluate", replace(greeting(), trial=0))
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"repair": "posterior"}, "what a repair sends has no noise"), ({"model": "mlp-ple"}, "counts for its bins have")],
)
def test_nothing_beside_the_ledger_is_sent_where_privacy_is_asked_for(
    settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    private = {"privacy": "site", "privacy.noise": 50, "privacy.epsilon_max": 1.0}
    place = site_of(tmp_path, most_epsilon=1.0)
    assert isinstance(asked(place, "query.hello", greeting("plain", **private)), Payload)
    assert why in reason(asked(place, "query.hello", greeting("more", **private | settings)))
    assert "a search by auto" in reason(asked(place, "query.hello", replace(greeting("s", **private), search=True)))


# -- finer grids -------------------------------------------------------------------------------------------------------


def counted(place: LocalSite, mean: float, spread: float, run: str = "run", **more: Any) -> Payload | Failure:
    scale = Scale(*(torch.tensor([t, t], dtype=torch.float64) for t in (mean, spread)))
    return asked(place, "query.count", replace(greeting(run, model="mlp-ple", **more), scale=scale))


def test_counts_are_given_on_one_grid(tmp_path: Path) -> None:
    """With ever finer grids the smallest income was found to eleven digits; under another name as well."""
    place = site_of(tmp_path)
    first = counted(place, 20_000, 10_000)
    assert isinstance(first, Payload)
    again = counted(place, 20_000, 10_000)
    assert isinstance(again, Payload)
    assert torch.equal(first.trees["counts"]["cells"], again.trees["counts"]["cells"])
    for run in ("run", "another"):
        assert "counts on another grid" in reason(counted(place, 20_000, 1_000, run))
    assert isinstance(counted(place, 20_000, 10_000, "another"), Payload)


def test_other_rows_are_counted_anew(tmp_path: Path) -> None:
    """A site with new rows, as after a month, has another mean; that is its own doing, not the coordinator's."""
    assert isinstance(counted(site_of(tmp_path), 20_000, 10_000), Payload)
    more = np.r_[TRUE, TRUE + 3]
    assert isinstance(counted(site_of(tmp_path, more), 20_001, 10_000, "next"), Payload)


# -- more models than rounds -------------------------------------------------------------------------------------------


def message(k: int, round: int = 0, number: int = 0, evaluate: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    words = {"round": round, "exchange": number, "evaluate": evaluate}
    words |= {name: [-1, 0] for name in ("from", "base", "best")}
    model = {"w": torch.full((6,), 0.01 * k), "buffers": torch.zeros(0)}
    return words, {"down": model, "model": model}


def answered(place: LocalSite, kind: str, run_info: RunInfo, messages: list[Any]) -> int:
    answers = [asked(place, kind, run_info, words, **trees) for words, trees in messages]
    failed = [answer for answer in answers if isinstance(answer, Failure)]
    assert all(isinstance(one, Declined) and "beyond the agreed rounds" in one.reason for one in failed), failed
    return len(answers) - len(failed)


def test_updates_are_counted_not_rounds(tmp_path: Path) -> None:
    """Five models in the only round of a run gave five updates; two more than rounds are left for resumes."""
    run_info = greeting(rounds=1)
    for again in range(2):  # and a site that was restarted has not forgotten
        place = site_of(tmp_path, most_rounds=1)
        assert answered(place, "train", run_info, [message(k) for k in range(12)]) == 3, again
    ten = greeting("ten", rounds=10)
    messages = [message(k, round) for round in range(10) for k in range(3)]
    assert answered(site_of(tmp_path), "train", ten, messages) == 10 + 4


def test_a_resumed_coordinator_may_repeat_its_rounds_as_often_as_it_likes(tmp_path: Path) -> None:
    place, run_info = site_of(tmp_path), greeting(rounds=2)
    messages = [message(0, 0), message(1, 1)] * 20
    assert answered(place, "train", run_info, messages) == 40
    with_figures = [message(1, 1, evaluate=1), message(0, 0)]  # the same exchange, now with figures of the last round
    assert answered(place, "train", run_info, with_figures) == 2


def test_figures_are_counted_as_well(tmp_path: Path) -> None:
    """A model with a chosen threshold has an accuracy that says how many rows lie beyond it."""
    place, run_info = site_of(tmp_path), greeting(rounds=1)
    figures = [message(k, 1, -1, 1) for k in range(30)]
    assert answered(place, "evaluate", run_info, figures) == 3
    words, trees = message(0, 7, -1, 1)
    assert "figures after round 7: it has agreed to 1" in reason(asked(place, "evaluate", run_info, words, **trees))


REPEATED: dict[str, Callable[[int], dict[str, Any]]] = {
    "query.ready": lambda k: {**message(k, evaluate=1)[0], "version": f"0.{k}"},
    "query.alone": lambda k: {"number": 0, "families": [str(k)]},
    "query.mix": lambda k: {"family": k},
}


@pytest.mark.parametrize("kind", REPEATED)
def test_other_questions_are_counted(kind: str, tmp_path: Path) -> None:
    place, run_info = site_of(tmp_path), replace(greeting(**{"split.validation": 0.25}), search=True)
    said = [reason(asked(place, kind, run_info, REPEATED[kind](k))) for k in range(12)]
    assert ["beyond the agreed rounds" in one for one in said] == [False] * 9 + [True] * 3, said


@pytest.mark.parametrize("number", [-1, 10**6])
def test_numbers_of_nothing_are_refused(number: int, tmp_path: Path) -> None:
    place, run_info = site_of(tmp_path), greeting(repair="posterior")
    words = {"round": REPAIR, "exchange": number - (number < 0), "trusted": 0}
    assert "is no number of an exchange" in reason(asked(place, "query.answer", run_info, words, down={}))
    search = replace(greeting("search", **{"split.validation": 0.25}), search=True)
    assert "family of models" in reason(asked(place, "query.alone", search, {"number": number}))
    trial = replace(search, trial=10**6)
    assert "takes part in 200 of a search" in reason(asked(place, "evaluate", trial))


def test_what_was_read_is_noted_before_it_is_answered(tmp_path: Path) -> None:
    place = site_of(tmp_path)
    asked(place, "query.hello", greeting())
    (kept,) = ReadingLedger.read(place.state).kept
    assert (kept.run, kept.given, kept.held_out) == ("run", True, (0.0,))
