"""privacy=site at real sites: their own secret, a price for every new answer, and a limit that no coordinator moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

pytest.importorskip("dp_accounting")

from imperfed.core.errors import RefusedBySiteError
from imperfed.core.labels import Exact
from imperfed.core.privacy_cost import spent
from imperfed.engine.failures import Declined
from imperfed.engine.site import RunSpec
from imperfed.experiments import experiment
from imperfed.experiments.watch import Watch
from imperfed.flower.messages.payload import Payload, failure_of, pack, unpack
from imperfed.flower.site.agreement import Agreement
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.privacy_ledger import PrivacyLedger, charging
from imperfed.flower.site.runtime import LocalSite
from imperfed.results.folder import RunFolder
from imperfed.testing.toy import differences
from tests.support.rehearsal import Alone, Apart, assert_same, raw, scaled, settled

NOISE = 2.0
PRIVATE: dict[str, Any] = {
    "privacy": "site",
    "privacy.clip": 0.05,
    "privacy.noise": NOISE,
    "model.name": "mlp",
    "model.hidden": 8,
    "local.epochs": 1,  # sites are trained one by one in one process as well
    "rounds.rounds": 2,
}


class Limited(Apart):
    """Sites that spend so much epsilon and no more."""

    most = 0.0

    def place(self, holding: Any) -> LocalSite:
        place = super().place(holding)
        return replace(place, policy=replace(place.policy, most_epsilon=self.most))


def updates(messages: list[tuple[str, Any]], round: int) -> list[Payload]:
    """The answers to one round's training."""
    up = [unpack(message.content) for way, message in messages if way == "up"]
    return [payload for payload in up if "up" in payload.trees]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """A whole run, by message."""
    return Apart(settled("fedavg", **PRIVATE), raw(Exact), tmp_path_factory.mktemp("apart")).start().go()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """Sites that have agreed to a run of ten rounds, none of which is made."""
    config = settled("fedavg", **PRIVATE | {"rounds.rounds": 10})
    return Apart(config, raw(Exact), tmp_path_factory.mktemp("begun")).start()


def spent_by(place: LocalSite, run: str = "") -> int:
    return len(PrivacyLedger.read(place.state).noises(run))


def asked(apart: Apart, site: int = 0, round: int = 2, **changed: torch.Tensor) -> Payload:
    """A message that asks a site for another update."""
    payload = apart.engine.backend._payload(site, round, 0)
    return replace(payload, trees=payload.trees | {"down": payload.trees["down"] | changed})


def answered(apart: Apart, payload: Payload, site: int = 0) -> torch.Tensor:
    answer = handle(apart.place(apart.holdings[site]), "train", pack(payload))
    return answer.trees["up"]["w"]


def test_with_the_same_keys_the_numbers_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settled("fedavg", **PRIVATE)

    def simulated(place: Any, run_info: Any, mechanism: Any, payload: Payload) -> Callable[..., bytes]:
        return lambda round, site, w: RunSpec.simulated_key(config.run, round, site, w)  # type: ignore[arg-type]

    monkeypatch.setattr("imperfed.flower.site.privacy_ledger.charging", simulated)
    apart = Apart(config, raw(Exact), tmp_path).start().go()
    assert_same(Alone(config, scaled(raw(Exact))).go(), apart)


def test_no_coordinator_can_work_out_the_noise(apart: Apart) -> None:
    alone = Alone(settled("fedavg", **PRIVATE), scaled(raw(Exact))).go()
    assert differences(alone.engine.state.server, apart.engine.state.server) == ["w"]
    secrets = {PrivacyLedger.read(apart.place(one).state).secret for one in apart.holdings}
    assert len(secrets) == 4
    assert all(len(secret) == 32 for secret in secrets)


def test_neither_the_loss_nor_anything_but_weights_is_sent(apart: Apart) -> None:
    sent = updates(apart.grid.sent, 0)
    assert len(sent) == 2 * 3
    for payload in sent:
        assert "loss" not in payload.words
        assert set(payload.trees["up"]) == {"w", "buffers"}
    assert all(report.losses == {} for report in apart.reports)
    lines = (apart.folder / "site0" / "run" / "metrics.jsonl").read_text()
    assert "train/loss" not in lines


def test_a_site_pays_for_each_round_and_for_no_rehearsal(apart: Apart) -> None:
    for k, holding in enumerate(apart.holdings):
        rounds = sum(k in report.who for report in apart.reports)
        assert spent_by(apart.place(holding)) == spent_by(apart.place(holding), "run") == rounds
    assert apart.engine.budget is not None
    assert max(apart.engine.budget.releases(2).values()) == max(spent_by(apart.place(h)) for h in apart.holdings)


def test_asking_again_gives_the_same_noise_and_costs_nothing(begun: Apart) -> None:
    payload = asked(begun, round=5)
    before = spent_by(begun.place(begun.holdings[0]))
    first = answered(begun, payload)
    assert spent_by(begun.place(begun.holdings[0])) == before + 1
    (begun.folder / "site0" / "last-answer.safetensors").unlink()
    second = answered(begun, replace(payload, words=payload.words | {"evaluate": 1}))
    assert torch.equal(first, second)
    assert spent_by(begun.place(begun.holdings[0])) == before + 1


@pytest.mark.parametrize("changed", ["model", "round", "scale", "index"])
def test_any_other_message_gets_other_noise_and_is_charged(changed: str, begun: Apart) -> None:
    payload = asked(begun, round=6)
    first, before = answered(begun, payload), spent_by(begun.place(begun.holdings[0]))
    trees, words = payload.trees, payload.words
    if changed == "model":
        trees = trees | {"down": trees["down"] | {"w": trees["down"]["w"] + 1e-6}}
    elif changed == "scale":
        trees = trees | {"scale": {name: t * (1 + 1e-12) for name, t in trees["scale"].items()}}
    else:
        words = words | {changed: 7}
    second = answered(begun, Payload(words, trees))
    assert spent_by(begun.place(begun.holdings[0])) == before + 1
    difference = (second - first) / (0.05 * NOISE)  # of two independent draws, but for the updates
    errors = 5 / (2 * difference.numel()) ** 0.5  # the noise is that of secret keys: other numbers every time
    assert errors < 0.9
    assert float(difference.std()) == pytest.approx(2**0.5, rel=errors)


def test_the_same_message_about_other_weights_gets_other_noise(apart: Apart) -> None:
    place, config = apart.place(apart.holdings[1]), apart.config
    assert config.privacy is not None
    key_of = charging(place, apart.engine.backend.run_infos[1], config.privacy, asked(apart, 1, round=7))
    before, w = spent_by(place), torch.zeros(3)
    keys = [key_of(7, 1, w), key_of(7, 1, w.clone()), key_of(7, 1, w + 1e-6)]
    assert keys[0] == keys[1] != keys[2]
    assert spent_by(place) == before + 2


def test_a_run_that_ends_early_is_whole_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "write_report", lambda folder: folder.write("report.html", ""))  # it takes long
    most = spent(NOISE / 2, 1e-5, 1) * 1.001
    config = settled("fedavg", **PRIVATE | {"privacy.epsilon_max": most, "rounds.participation": 1.0})
    apart = Apart(config, raw(Exact), tmp_path)
    RunFolder(tmp_path / "run").write("config.toml", config.toml())
    apart.coordinator().run(Watch())
    for folder, early in ((tmp_path / "run", True), (tmp_path / "site0" / "run", True)):
        summary = RunFolder(folder).summary()
        assert summary is not None
        assert summary.rounds == 1
        assert summary.privacy is not None
        assert summary.privacy.early == early
        assert not summary.privacy.simulated
        assert summary.privacy.releases == 1
        assert summary.privacy.epsilon == pytest.approx(spent(NOISE / 2, 1e-5))
        assert "means and standard deviations of the inputs" in summary.privacy.not_covered


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_limit_of_the_run_holds_at_the_site_as_well(tmp_path: Path) -> None:
    most = spent(NOISE / 2, 1e-5, 2) * 1.001
    limited = PRIVATE | {"privacy.epsilon_max": most, "rounds.rounds": 3}
    apart = Apart(settled("fedavg", **limited), raw(Exact), tmp_path).start()
    place = apart.place(apart.holdings[0])
    for round in (0, 1):
        answered(apart, asked(apart, round=round))
    failure = failure_of(handle(place, "train", pack(asked(apart, round=2))))
    assert isinstance(failure, Declined)
    assert "site0 refuses another update: it would bring epsilon to" in failure.reason
    assert "(privacy.epsilon_max)" in failure.reason
    assert spent_by(place) == 2


def test_the_limit_of_a_site_is_over_all_runs(tmp_path: Path) -> None:
    Limited.most = spent(NOISE / 2, 1e-5, 2) * 1.001
    limit = {"privacy.epsilon_max": Limited.most}
    apart = Limited(settled("fedavg", **PRIVATE | limit | {"rounds.participation": 1.0}), raw(Exact), tmp_path)
    apart.start().go()
    assert len(apart.reports) == 2
    place = apart.place(apart.holdings[0])
    payload = asked(apart, round=0)
    again = handle(place, "train", pack(replace(payload, words=payload.words | {"run": "another", "from": [-1, 0]})))
    failure = failure_of(again)
    assert isinstance(failure, Declined)
    assert "(most_epsilon, over all runs)" in failure.reason


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"privacy": ""}, r"run.privacy = none: this site sends updates with noise only"),
        ({}, r"privacy.epsilon_max = 0: this site asks for a limit \(most_epsilon = 30\)"),
        ({"privacy.epsilon_max": 31.0}, r"privacy.epsilon_max = 31: this site asks for a limit"),
        ({"privacy.epsilon_max": 29.0, "privacy.delta": 0.001}, r"privacy.delta = 0.001: this site allows 1e-05"),
    ],
)
def test_a_site_may_ask_for_privacy(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    Limited.most = 30.0
    words = PRIVATE | settings
    if not words["privacy"]:
        words = {name: value for name, value in words.items() if not name.startswith("privacy")}
    with pytest.raises(RefusedBySiteError, match=f"site0 refuses {said}"):
        Limited(settled("fedavg", **words), raw(Exact), tmp_path).start()


def test_a_method_that_sends_more_is_refused_by_the_site_itself(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **PRIVATE), raw(Exact), tmp_path).start()
    payload = asked(apart, round=0)
    settings = payload.text("settings").replace('method = "fedavg"', 'method = "mime"')
    folder = tmp_path / "site0" / "run"
    agreed = Agreement.read(folder)
    assert agreed is not None
    msgspec.structs.replace(agreed, settings=settings).write(folder)
    place = apart.place(apart.holdings[0])
    answer = handle(place, "train", pack(replace(payload, words=payload.words | {"settings": settings})))
    assert "mime asks for 'gradient' in round 1" in str(failure_of(answer))
    assert spent_by(place) == 0
