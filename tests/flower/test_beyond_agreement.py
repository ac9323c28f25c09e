"""What a coordinator asks beyond what a site agreed to: other kinds of messages, finer grids, more models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from imperfed.data.scale import Scale
from imperfed.engine.failures import Declined, Failure
from imperfed.flower.messages.payload import REPAIR, Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site import handlers
from imperfed.flower.site.allowed_kinds import CONDITIONS, why_not
from imperfed.flower.site.handlers import HANDLERS
from imperfed.flower.site.runtime import LocalSite
from tests.support.asked_site import TRUE, asked, greeting, reason, site_of

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
