"""privacy=sum at real sites: the coordinator sees masked shares, their sum, and no single update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("dp_accounting")

from flwr.app import Message

from imperfed.core.labels import Exact
from imperfed.engine.failures import Declined
from imperfed.engine.site import RunSpec
from imperfed.flower.messages.payload import Payload, failure_of, pack, unpack
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.masked_shares import masks
from imperfed.flower.site.privacy_ledger import PrivacyLedger
from tests.support.rehearsal import Alone, Apart, assert_same, raw, scaled, settled

SECRET: dict[str, Any] = {
    "privacy": "sum",
    "model.name": "mlp",
    "model.hidden": 8,
    "local.epochs": 1,
    "rounds.rounds": 2,
    "rounds.participation": 1.0,
}
LONGER = {"rounds.rounds": 10}
"""More rounds than are trained here, so that sites can be asked about others to which they have agreed."""
UNIT = 2.0**-40


def run(folder: Path, **more: Any) -> Apart:
    return Apart(settled("fedavg", **SECRET | more), raw(Exact), folder).start()


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """A whole run, by message."""
    return run(tmp_path_factory.mktemp("apart")).go()


def shares_in(apart: Apart, round: int = 1) -> dict[str, torch.Tensor]:
    """The shares that arrived in a round, by site."""
    found, asked = {}, {}
    for way, message in apart.grid.sent:
        payload = unpack(message.content)
        if way == "down" and message.metadata.message_type == "query.unite" and payload.number("round") == round:
            asked[message.metadata.message_id] = payload.number("index")
        if way == "up" and message.metadata.reply_to_message_id in asked and "share" in payload.trees:
            found[f"site{asked[message.metadata.reply_to_message_id]}"] = payload.trees["share"]["w"]
    return found


def sum_of(apart: Apart, site: int = 0, **words: Any) -> Payload:
    """A message that asks a site for its share."""
    names, weights = [f"site{k}" for k in range(4)], [0.25] * 4
    asked = {"round": 5, "exchange": 0, "sites": names, "weights": weights} | words
    return apart.engine.backend.run_infos[site].payload(asked)


def trained(apart: Apart, site: int, round: int, change: float = 0.0) -> None:
    """Let a site train in a round, and keep its update."""
    payload = apart.engine.backend._payload(site, round, 0)
    down = payload.trees["down"]
    changed = replace(payload, trees=payload.trees | {"down": down | {"w": down["w"] + change}})
    answer = handle(apart.place(apart.holdings[site]), "train", pack(changed))
    assert not answer.trees
    assert not answer.words


def share(apart: Apart, site: int, **words: Any) -> torch.Tensor:
    answer = handle(apart.place(apart.holdings[site]), "query.unite", pack(sum_of(apart, site, **words)))
    assert "share" in answer.trees, answer.words
    return answer.trees["share"]["w"]


def refusal(apart: Apart, site: int, **words: Any) -> str:
    answer = handle(apart.place(apart.holdings[site]), "query.unite", pack(sum_of(apart, site, **words)))
    failure = failure_of(answer)
    assert failure is not None
    return failure.reason


# -- what the coordinator sees -----------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_one_process_bit_for_bit(apart: Apart) -> None:
    alone = Alone(apart.config, scaled(raw(Exact))).go()
    assert_same(alone, apart)
    start = Alone(apart.config, scaled(raw(Exact))).engine.state.server["w"]
    assert not torch.equal(start, apart.engine.state.server["w"])


def test_no_message_to_the_coordinator_holds_an_update(apart: Apart) -> None:
    """Every number that arrives in training is a masked one, spread evenly over all whole numbers."""
    seen = 0
    for way, message in apart.grid.sent:
        for part, tree in unpack(message.content).trees.items() if way == "up" else ():
            for name, t in tree.items():
                if part in ("sums", "annotated"):  # of hello
                    continue
                seen += 1
                assert (part, name, t.dtype) == ("share", "w", torch.int64)
                assert float(t.double().mean() / 2**63) == pytest.approx(0, abs=0.2)
                assert float(t.double().abs().mean() / 2**63) == pytest.approx(0.5, abs=0.1)
    assert seen == 2 * 4


def test_only_all_shares_together_have_a_meaning(apart: Apart) -> None:
    parts = shares_in(apart)
    assert len(parts) == 4
    whole = torch.stack(list(parts.values())).sum(0).double() * UNIT
    assert float(whole.norm()) < 10
    for left_out in parts:
        rest = torch.stack([t for name, t in parts.items() if name != left_out]).sum(0).double() * UNIT
        assert float(rest.norm()) > 2**20


def test_a_share_depends_on_its_masks_and_not_only_on_the_update() -> None:
    names = ["a", "b", "c"]
    one, other = (masks(b"secret", about, "b", names, 1000) for about in (b"x", b"y"))
    assert not (one == other).any()
    assert not (masks(b"other", b"x", "b", names, 1000) == one).any()
    assert not torch.stack([masks(b"secret", b"x", name, names, 1000) for name in names]).sum(0).any()
    assert torch.stack([masks(b"secret", b"x", name, names, 9) for name in names[:2]]).sum(0).all()


# -- what no coordinator gets ------------------------------------------------------------------------------------------


def test_a_site_gives_one_share_in_a_round(tmp_path: Path) -> None:
    apart = run(tmp_path, **LONGER)
    trained(apart, 0, 5)
    first = share(apart, 0)
    trained(apart, 0, 5, change=0.1)  # and the same masks would show the difference of two updates
    (tmp_path / "site0" / "last-answer.safetensors").unlink()
    assert torch.equal(share(apart, 0), first)
    three = {"sites": ["site0", "site1", "site2"], "weights": [0.4, 0.3, 0.3]}
    assert "site0 refuses another sum in round 6" in refusal(apart, 0, **three)
    assert "another sum in round 6" in refusal(apart, 0, weights=[0.26, 0.24, 0.25, 0.25])
    assert "another sum in round 5" in refusal(apart, 0, round=4)
    assert "has not trained in round 8" in refusal(apart, 0, round=7)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"sites": ["site0", "site1"], "weights": [0.5, 0.5]}, "site0 refuses a sum over 2 sites"),
        ({"weights": [0.97, 0.01, 0.01, 0.01]}, "site0 refuses a sum in which one site has more than 50%"),
        ({"sites": ["site1", "site2", "site3"], "weights": [0.4, 0.3, 0.3]}, "gives no share of a sum over other"),
        ({"sites": ["site0", "site0", "site1", "site2"]}, "gives no share of a sum over other sites"),
    ],
)
def test_sums_that_would_show_a_single_update_are_refused(words: Any, said: str, apart: Apart) -> None:
    assert said in refusal(apart, 0, **words)


def test_masks_cancel_only_if_all_sites_were_sent_the_same_model(tmp_path: Path) -> None:
    """Another model at the others, whose updates are then known, would leave the one site's update in the sum."""
    apart = run(tmp_path, **LONGER)
    for k in range(4):
        trained(apart, k, 5)
    assert float((torch.stack([share(apart, k) for k in range(4)]).sum(0).double() * UNIT).norm()) < 10
    for k in range(4):
        trained(apart, k, 6, change=0.0 if k == 0 else 1e-6)
    parts = torch.stack([share(apart, k, round=6) for k in range(4)])
    assert float((parts.sum(0).double() * UNIT).norm()) > 2**20


# -- sites that fail ---------------------------------------------------------------------------------------------------


def on_sum(way: Callable[[Message, Any], Message | None]) -> Callable[[Message, Any], Message | None]:
    """What happens to the message that asks a site for its share in round 1."""

    def mishap(message: Message, answer: Any) -> Message | None:
        asked = message.metadata.message_type == "query.unite" and unpack(message.content).number("round") == 0
        return way(message, answer) if asked else answer(message)

    return mishap


def test_without_one_share_the_model_stays_and_the_next_round_goes_on(tmp_path: Path) -> None:
    apart = run(tmp_path)
    before = apart.engine.state.server["w"].clone()
    apart.grid.nodes[102].mishap = on_sum(lambda message, answer: None)
    apart.go(rounds=1)
    assert torch.equal(apart.engine.state.server["w"], before)
    assert set(apart.reports[0].failures) == {2}
    assert any("some are missing" in note for note in apart.reports[0].notes)
    apart.go()
    assert not apart.reports[1].failures
    assert not torch.equal(apart.engine.state.server["w"], before)


def test_a_wrong_share_changes_nothing_and_the_log_says_that_nobody_can_be_named(tmp_path: Path) -> None:
    apart = run(tmp_path)
    before = apart.engine.state.server["w"].clone()

    def lie(message: Message, answer: Any) -> Message:
        content = unpack(answer(message).content)
        tree = {"w": content.trees["share"]["w"] + 2**50}
        return Message(pack(replace(content, trees={"share": tree})), reply_to=message)

    apart.grid.nodes[102].mishap = on_sum(lie)
    apart.go(rounds=1)
    assert torch.equal(apart.engine.state.server["w"], before)
    assert any("whose share is wrong cannot be told" in note for note in apart.reports[0].notes)
    assert any("site0, site1, site2, site3" in note for note in apart.reports[0].notes)


def test_a_share_of_the_wrong_shape_is_charged_to_its_sender(tmp_path: Path) -> None:
    apart = run(tmp_path)

    def short(message: Message, answer: Any) -> Message:
        content = unpack(answer(message).content)
        return Message(pack(replace(content, trees={"share": {"w": torch.zeros(3)}})), reply_to=message)

    apart.grid.nodes[101].mishap = on_sum(short)
    apart.go(rounds=1)
    assert "'w' has shape (3,)" in apart.reports[0].failures[1].reason


# -- with noise --------------------------------------------------------------------------------------------------------


def test_noise_is_each_sites_own_and_paid_for_with_the_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = {"privacy.noise": 4.0, "privacy.clip": 0.05, "privacy.epsilon_max": 3.2}
    apart = run(tmp_path / "own", **noisy, **LONGER).go(2)
    assert apart.engine.budget is not None
    assert [len(PrivacyLedger.read(apart.place(one).state).releases) for one in apart.holdings] == [2] * 4
    alone = Alone(settled("fedavg", **SECRET | noisy), scaled(raw(Exact))).go()
    assert not torch.equal(alone.engine.state.server["w"], apart.engine.state.server["w"])
    trained(apart, 0, 9)
    failure = refusal(apart, 0, round=9)
    assert "site0 refuses another update: it would bring epsilon to" in failure

    def simulated(place: Any, run_info: Any, mechanism: Any, payload: Payload) -> Callable[..., bytes]:
        return lambda round, site, w: RunSpec.simulated_key(apart.config.run, round, site, w)  # type: ignore[arg-type]

    monkeypatch.setattr("imperfed.flower.site.masked_shares.charging", simulated)
    assert_same(alone, run(tmp_path / "same", **noisy).go())


def test_a_site_without_the_secret_takes_no_part(apart: Apart) -> None:
    place = replace(apart.place(apart.holdings[0]), secret=b"")
    failure = failure_of(handle(place, "query.unite", pack(sum_of(apart, weights=[0.3, 0.3, 0.2, 0.2]))))
    assert failure is not None
    assert not isinstance(failure, Declined)
    assert "a secret that the sites share" in failure.reason
