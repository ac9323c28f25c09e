"""What a site says is a claim: whatever it sends, it is named, the others go on, and the coordinator does not end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from imperfed.core.errors import QuorumError
from imperfed.core.federation import HeldOut
from imperfed.core.foreign_text import LONGEST, printable
from imperfed.core.labels import Candidates, Exact
from imperfed.engine.failures import Crashed, Failure, Misshapen, NotFinite
from imperfed.engine.population import capped
from imperfed.engine.validate import LARGEST, largest_answer
from imperfed.experiments.resolving import resolve
from imperfed.flower.coordinator.remote_search import SitesElsewhere
from imperfed.flower.messages.payload import ASKED, FAILED, FAILED_KIND, Payload, RefusedError, pack, scores_of, unpack
from tests.flower.test_mishaps import ROUND, SITE, Answer, changed, everybody, in_round
from tests.support.rehearsal import AT_ONCE, Alone, Apart, assert_same, raw, scaled


def test_a_replayed_answer_is_refused(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    kept: list[Payload] = []

    def replay(message: Message, answer: Answer) -> Message:
        words = unpack(message.content).words
        reply = answer(message)
        if (words["round"], words["exchange"]) == (0, 0):
            kept.append(unpack(reply.content))
        return Message(pack(kept[0]), reply_to=message) if words["round"] == 1 else reply

    apart.grid.nodes[100 + SITE].mishap = replay
    apart.go()
    assert apart.reports[1].failures == {SITE: Misshapen("its answer was refused: it answers another message")}


def test_an_answer_of_another_site_is_refused(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    others: list[Payload] = []

    def listen(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        others.append(unpack(reply.content))
        return reply

    apart.grid.nodes[100].mishap = listen
    apart.grid.nodes[100 + SITE].mishap = in_round(lambda m, answer: Message(pack(others[-1]), reply_to=m))
    apart.go()
    assert apart.reports[ROUND].failures == {SITE: Misshapen("its answer was refused: it answers another message")}


def test_a_coordinator_with_a_damaged_checkpoint_goes_back_to_the_one_before(tmp_path: Path) -> None:
    """The sites still have the states that belong to it."""
    whole = Alone(everybody(), scaled(raw(Candidates))).go()
    first = Apart(whole.config, raw(Candidates), tmp_path).start()
    for round in (1, 2):
        first.go(rounds=round)
    path = first.server.folder.checkpoint
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.write_bytes(content)
    second = Apart(whole.config, raw(Candidates), tmp_path).start()
    assert second.engine.state.round == 1
    assert "last.safetensors: not a readable checkpoint (damaged" in (tmp_path / "run" / "log.txt").read_text()
    second.go()
    second.reports = first.reports[:1] + second.reports
    assert_same(whole, second)


def test_a_loss_that_is_no_number_is_charged(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    nan = lambda letter: replace(letter, words={**letter.words, "loss": math.nan})  # noqa: E731
    apart.grid.nodes[100 + SITE].mishap = in_round(lambda m, answer: changed(answer(m), nan, m))
    apart.go()
    assert apart.reports[ROUND].failures == {SITE: NotFinite("its answer was refused: its loss is nan")}


@pytest.mark.parametrize("long", [False, True])
def test_foreign_text_is_escaped_and_cut(long: bool, tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    text = "\x1b[31mred\x1b[0m\nround 9: \u202eall is well" + ("x" * 3 * 2**20 if long else "")
    words = {FAILED: text}
    apart.grid.nodes[100].mishap = in_round(
        lambda m, answer: changed(answer(m), lambda letter: Payload({ASKED: letter.words[ASKED], **words}), m)
    )
    apart.grid.nodes[101].mishap = in_round(
        lambda m, answer: Message(Error(ErrorCode.CLIENT_APP_CRASHED, text), reply_to=m)
    )
    apart.go()
    failures = apart.reports[ROUND].failures
    assert {type(failure) for failure in failures.values()} == {Failure, Crashed}
    for failure in failures.values():
        assert r"\x1b[31mred\x1b[0m\nround 9: \u202eall is well" in failure.reason
        assert failure.reason.isprintable()
        assert len(failure.reason) < LONGEST + 50


def test_text_is_printable_and_short() -> None:
    assert printable("plain é 漢") == "plain é 漢"
    assert printable("a" * 1000, 10) == "aaaaaaaaaa... (1000 characters)"
    assert len(printable("\x1b" * LONGEST)) < LONGEST + 30


@pytest.mark.parametrize(("value", "count"), [(1.73, 10), (-0.1, 10), (math.inf, 10), (0.5, -5), (0.5, 11), (0.5, 3)])
def test_figures_that_cannot_be_are_refused(value: float, count: int) -> None:
    words: dict[str, Any] = {"metrics": ["accuracy"], "values": [value], "counts": [count]}
    with pytest.raises(RefusedError, match=r"'accuracy' cannot be .* on .* of its 10 test rows"):
        scores_of(Payload(words), tests=10, known=[("accuracy",)])


@pytest.mark.parametrize(
    "names",
    [["\x1b[2J", "accuracy"], ["zzz"], ["accuracy", "accuracy"], ["accuracy", "p@1"], ["auroc", "p@1", "p@1"]],
)
def test_figures_have_the_names_of_the_evaluator(names: list[str]) -> None:
    words: dict[str, Any] = {"metrics": names, "values": [0.5] * len(names), "counts": [3] * len(names)}
    with pytest.raises(RefusedError, match=r"its metrics are called .*, not accuracy or auroc, p@1"):
        scores_of(Payload(words), tests=10, known=[("accuracy",), ("auroc", "p@1")])
    with pytest.raises(RefusedError, match="not there are none"):
        scores_of(Payload(words), tests=10, known=[])


LIES: dict[str, tuple[dict[str, Any], Callable[[torch.Tensor], torch.Tensor] | None, str, str]] = {
    "no rows": ({"rows": -5}, None, "", "it cannot have -5 rows"),
    "too many rows": ({"rows": 2**41}, None, "", "it cannot have 2199023255552 rows"),
    "negative test rows": ({"tests": -7}, None, "", "it cannot have -7 test rows"),
    "another count": ({}, lambda t: t + 1, "count", "they count 32 values per column, and its rows have 31"),
    "negative squares": ({}, lambda t: -t, "square", "no numbers have such a sum"),
    "squares too small": ({}, lambda t: t * 1e-6, "square", "no numbers have such a sum"),
    "squares beyond any number": ({}, lambda t: t * 1e200, "square", "no numbers have such a sum"),
    "an input without end": ({"shape": [1, 2**62, 2**62]}, None, "", "is not the shape of an input"),
    "an input beyond all memory": ({"shape": [2**20, 2**20]}, None, "", "is not the shape of an input"),
    "one sum too few": ({}, lambda t: t[1:], "sum", "do not fit inputs of shape"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_site_cannot_hold_is_refused(lie: str, tmp_path: Path) -> None:
    words, change, name, reason = LIES[lie]
    apart = Apart(everybody(), raw(Candidates), tmp_path)

    def lying(info: Payload) -> Payload:
        sums = info.trees["sums"]
        sums = sums | {name: change(sums[name])} if change else sums
        return Payload({**info.words, **words}, {**info.trees, "sums": sums})

    apart.grid.nodes[100 + SITE].mishap = lambda m, answer: changed(answer(m), lying, m)
    with pytest.raises(QuorumError, match="site2 did not connect"):
        apart.start(replace(AT_ONCE, gather=0.05))
    assert "node 102 is not admitted: site2: " in (tmp_path / "run" / "messages.txt").read_text()
    assert reason in (tmp_path / "run" / "messages.txt").read_text()


def test_a_node_that_is_not_admitted_is_named_by_its_key(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    apart.grid.nodes[100 + SITE].mishap = lambda m, answer: changed(
        answer(m), lambda info: replace(info, words={**info.words, "shape": ["a"]}), m
    )
    server = apart.coordinator(AT_ONCE)
    server.transport.admitted = {f"site{k}": 100 + k for k in range(4)}
    server.transport.look()
    told = (tmp_path / "run" / "messages.txt").read_text()
    assert "node 102 (site2) is not admitted: site2: ('a',) is not the shape of an input" in told
    assert server.transport.missing() == ["site2"]


@pytest.mark.parametrize("kind", ["unreadable", "crashed", "no such kind"])
def test_a_site_cannot_end_the_run_by_the_kind_of_its_failure(kind: str, tmp_path: Path) -> None:
    """In one process a file that cannot be read ends the run."""
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    words = {FAILED: "a file is gone", FAILED_KIND: kind}
    apart.grid.nodes[100 + SITE].mishap = in_round(
        lambda m, answer: changed(answer(m), lambda letter: Payload({ASKED: letter.words[ASKED], **words}), m)
    )
    apart.go()
    assert apart.reports[ROUND].failures[SITE].reason == "a file is gone"
    assert len(apart.reports) == 3


def test_a_site_that_says_it_has_all_rows_does_not_decide_alone(tmp_path: Path) -> None:
    apart = Apart(everybody("fedavg"), raw(Exact), tmp_path)

    def a_trillion(info: Payload) -> Payload:
        more = 10**12 / info.words["rows"]  # type: ignore[operator]
        sums = {name: (t * more).to(t.dtype) for name, t in info.trees["sums"].items()}
        sums["count"] = torch.full_like(sums["count"], 10**12)
        return Payload({**info.words, "rows": 10**12}, {**info.trees, "sums": sums})

    def lying(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        return changed(reply, a_trillion, message) if message.metadata.message_type == "query.hello" else reply

    apart.grid.nodes[100 + SITE].mishap = lying
    apart.start()
    counts = apart.engine.population.counts
    assert counts[SITE] == sum(counts) / 2
    apart.go(rounds=1)
    assert any(note.startswith("site2 has 1000000000000 of") for note in apart.reports[0].notes)


def test_a_site_with_less_than_its_share_counts_as_it_is() -> None:
    assert capped([30, 40, 31], 0.5) == [30, 40, 31]
    assert capped([30, 40, 10**12], 0.5) == [30, 40, 70]
    assert capped([30, 40, 10**12], 0.0) == [30, 40, 10**12]
    assert capped([30, 40, 10**12], 1.0) == [30, 40, 10**12]
    assert capped([1, 100, 100, 100], 0.3) == pytest.approx([1, 3, 3, 3])
    assert capped([5, 9], 0.4) == [5, 5]


def test_a_search_counts_no_site_more_than_its_share(tmp_path: Path) -> None:
    sites = SitesElsewhere.__new__(SitesElsewhere)
    sites.base = resolve(words={"method": "fedavg", "rounds.max_share": 0.5})
    held = (0, 30, 70, 70 + 10**12)
    sites.data = SimpleNamespace(  # type: ignore[assignment]
        federation=SimpleNamespace(validation=HeldOut(torch.empty(0, 1), Exact.empty(2), held))
    )
    read, said = sites._likelihoods(1), Payload({"likelihood": [-15.0]})
    assert read(1, said).tolist() == [-15.0]
    assert read(2, Payload({"likelihood": [-(10.0**12)]})).tolist() == pytest.approx([-70.0])


def test_one_process_has_no_limit_unless_it_is_set() -> None:
    counts = Alone(everybody("fedavg"), scaled(raw(Exact))).engine.population.counts
    assert counts == raw(Exact).federation.sizes()
    low = Alone(everybody("fedavg", **{"rounds.max_share": 0.3}), scaled(raw(Exact))).engine.population.counts
    assert max(low) / sum(low) == pytest.approx(0.3)


def test_the_limit_of_an_answer_follows_what_was_sent() -> None:
    small, large = ({"w": torch.zeros(n)} for n in (10, 10**6))
    assert LARGEST < largest_answer(small, 100) < largest_answer(large, 100)
    assert largest_answer(large, 100) - largest_answer(small, 100) == 8 * 4 * (10**6 - 10)
    assert largest_answer(small, 10**12) < 2 * 2**30
