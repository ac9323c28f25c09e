"""Real sites hold their own rows out: a score and its weight travel, and each keeps its state of the best round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Validity
from imperfed.core.labels.validity import UNKNOWN
from imperfed.engine.engine import Engine
from imperfed.experiments.watch import Watch
from imperfed.flower.messages.payload import Payload, RefusedError, unpack, validity_of, validity_words
from imperfed.results.folder import RunFolder
from imperfed.testing.toy import differences
from tests.support.inspector import assert_nothing_private
from tests.support.rehearsal import Alone, Apart, assert_same, raw, scaled, settled

HOLD_OUT = {"split.validation": 0.25, "rounds.rounds": 6}
SCORES = (0.2, 0.6, 0.5, 0.4, 0.3, 0.9)
"""Round 2 is the best one when a run ends for want of patience."""


def as_if(engine: Engine, scores: tuple[float, ...] = SCORES) -> None:
    """Let every site of a run report these scores, round by round."""
    engine.backend.validate = lambda _: {  # type: ignore[method-assign]
        k: Validity(scores[engine.state.round - 1], 1.0) for k in range(4)
    }


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("fedavg+cross-entropy", Exact),
        ("pfedpll", Candidates),
        ("fedpsl", Annotated),
        ("local-only+proden", Candidates),
        ("ifca+cross-entropy", Exact),
    ],
)
def test_one_process_or_many(method: str, kind: type[Labels], tmp_path: Path) -> None:
    config, data = settled(method, **HOLD_OUT | {"rounds.rounds": 3}), raw(kind)
    apart = Apart(config, data, tmp_path).start().go()
    alone = Alone(config, scaled(data)).go()
    assert_same(alone, apart)
    assert_nothing_private(apart)
    assert alone.reports[-1].validation.known
    assert apart.engine.population.sizes == alone.engine.population.sizes == [9, 15, 23, 20]
    held = apart.engine.population.federation.validation
    assert held is not None
    assert held.sizes() == [3, 5, 8, 6]


@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_every_site_returns_to_its_own_state_of_the_best_round(participation: float, tmp_path: Path) -> None:
    more: dict[str, Any] = HOLD_OUT | {"rounds.patience": 3, "rounds.participation": participation}
    config, data = settled("local-only+proden", **more), raw(Candidates)
    apart, alone = Apart(config, data, tmp_path).start(), Alone(config, scaled(data))
    for run in (apart, alone):
        as_if(run.engine)
        run.go()
        assert len(run.reports) == 5
        assert run.engine.return_to_best() == 2
    for k in range(4):
        assert not differences(alone.site(k), apart.site(k)), k
    assert alone.engine.evaluate() == apart.engine.evaluate()
    two = Alone(settled("local-only+proden", **more | {"rounds.rounds": 2}), scaled(data)).go()
    assert not differences(two.site(0), apart.site(0))


def test_a_resumed_coordinator_returns_to_the_same_round(tmp_path: Path) -> None:
    config, data = settled("pfedpll", **HOLD_OUT | {"rounds.patience": 3}), raw(Candidates)
    first = Apart(config, data, tmp_path).start()
    as_if(first.engine)
    first.go(rounds=4)
    again = Apart(config, data, tmp_path).start()
    assert again.engine.state.round == 4
    as_if(again.engine)
    again.go()
    alone = Alone(config, scaled(data))
    as_if(alone.engine)
    alone.go()
    for run in (again, alone):
        assert run.engine.return_to_best() == 2
    for k in range(4):
        assert not differences(alone.site(k), again.site(k)), k


def test_only_a_score_and_its_weight_travel(tmp_path: Path) -> None:
    apart = Apart(settled("pfedpll", **HOLD_OUT), raw(Candidates), tmp_path).start().go(rounds=2)
    words = [unpack(m.content).words for way, m in apart.grid.sent if way == "up"]
    sent = [word["validation"] for word in words if "validation" in word]
    assert sent
    assert all(len(pair) == 2 and all(type(number) is float for number in pair) for pair in sent)
    hello = [word for word in words if "held out" in word]
    assert [(word["rows"], word["held out"]) for word in hello] == [(9, 3), (15, 5), (23, 8), (20, 6)]


def test_sites_without_test_rows_are_asked_too(tmp_path: Path) -> None:
    data = raw(Candidates)
    data = replace(data, oracle=replace(data.oracle, test_x=(), test_y=()))
    config = settled("pfedpll", **HOLD_OUT | {"rounds.rounds": 2})
    apart = Apart(config, data, tmp_path).start().go()
    assert_same_validity = [(r.validity, r.validation) for r in Alone(config, scaled(data)).go().reports]
    assert [(r.validity, r.validation) for r in apart.reports] == assert_same_validity
    assert apart.reports[-1].validation.known


def test_both_sides_say_which_round_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = settled("pfedpll", **HOLD_OUT | {"rounds.patience": 3}), raw(Candidates)
    apart = Apart(config, data, tmp_path)
    server = apart.coordinator()
    server.folder.write("config.toml", config.toml())
    make = server.experiment

    def experiment() -> Any:
        made = make()
        as_if(made.engine)
        return made

    monkeypatch.setattr(server, "experiment", experiment)
    summary = server.run(Watch())
    assert summary.validation is not None
    assert (summary.validation.round, summary.validation.kept, summary.validation.early) == (2, True, True)
    assert (summary.rounds, summary.validation.rows) == (5, 22)
    own = RunFolder(tmp_path / "site0" / "run").summary()  # None where a run has not finished
    assert own is not None
    assert own.validation is not None
    assert (own.validation.round, own.validation.early, own.validation.rows, own.rounds) == (2, True, 3, 5)
    assert summary.predictions is None
    assert summary.calibration is not None
    assert summary.calibration.sentence().endswith("in the report that each site writes for itself")
    assert own.predictions is not None
    assert own.predictions.n == own.sites[0].test > 0
    assert own.calibration is not None
    assert "real sites keep theirs" in own.calibration.sentence()
    assert own.facts.held_out_rows == (3,)
    assert own.facts.rows == (9,)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([0.5], "not a score and a weight"),
        ([0.5, 3], "not a score and a weight"),
        ([float("nan"), 3.0], "not a score and a weight"),
        ([1.5, 3.0], "1.5 with weight 3, cannot be"),
        ([0.5, 13.0], "0.5 with weight 13, cannot be"),
        ([0.5, -1.0], "weight -1, cannot be"),
    ],
)
def test_a_score_is_only_a_claim(words: list[Any], complaint: str) -> None:
    with pytest.raises(RefusedError, match=complaint):
        validity_of(Payload({"validation": words}), cells=12, classes=3)


def test_a_score_survives_the_message() -> None:
    sent = Validity(-0.25, 7.5)
    assert validity_of(Payload(validity_words(sent)), cells=12, classes=3) == sent
    assert validity_words(UNKNOWN) == {}
    assert validity_of(Payload(), cells=12, classes=3) is UNKNOWN
