"""A site whose answer is late is asked again: what was lost costs seconds, and one that hangs not every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Error, Message

from imperfed.core.labels import Candidates
from imperfed.flower.messages.answer_times import AnswerTimes, Waiting
from imperfed.flower.messages.payload import ASKED, FAILED, Payload, unpack
from imperfed.flower.messages.transport import Timeouts
from imperfed.flower.site import handlers
from imperfed.flower.site.last_answer import digest_of, keep_answer, last_answer
from imperfed.testing.toy import differences
from tests.support.rehearsal import AT_ONCE, Apart, raw, settled

Answer = Callable[[Message], Message]
SOON = replace(AT_ONCE, answer=20.0, repeat=0.01)


def config(**more: object):  # type: ignore[no-untyped-def]
    return settled("pfedpll", **{"rounds.participation": 1.0, "rounds.rounds": 2} | more)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    return Apart(config(), raw(Candidates), tmp_path_factory.mktemp("undisturbed")).start().go()


def first_time(way: Callable[[Message, Answer], Message | None]) -> Callable[[Message, Answer], Message | None]:
    """Something happens to the first message of round 2 at a site, and never again."""
    seen: list[Message] = []

    def mishap(message: Message, answer: Answer) -> Message | None:
        if unpack(message.content).words.get("round") == 1:
            seen.append(message)
            return way(message, answer) if len(seen) == 1 else answer(message)
        return answer(message)

    return mishap


LOST: dict[str, Callable[[Message, Answer], Message | None]] = {
    "the message": lambda message, answer: None,
    "the answer": lambda message, answer: (answer(message), None)[1],
}


@pytest.mark.parametrize("lost", LOST)
def test_what_was_lost_is_asked_again_with_the_same_result(lost: str, undisturbed: Apart, tmp_path: Path) -> None:
    apart = Apart(config(), raw(Candidates), tmp_path).start(SOON)
    apart.grid.nodes[102].mishap = first_time(LOST[lost])
    apart.go()
    assert not any(report.failures for report in apart.reports)
    for k in range(4):
        assert not differences(apart.site(k), undisturbed.site(k))
    assert "round 2: asking site2 again after" in (tmp_path / "run" / "messages.txt").read_text()
    again = "asked again; the answer is that of the first time" in (tmp_path / "site2" / "log.txt").read_text()
    assert again == (lost == "the answer")


def test_an_error_for_the_first_message_does_not_count_once_it_is_asked_again(tmp_path: Path) -> None:
    apart = Apart(config(), raw(Candidates), tmp_path).start(SOON)
    late: list[Message] = []

    def error_later(message: Message, answer: Answer) -> Message | None:
        late.append(message)
        return None

    apart.grid.nodes[102].mishap = first_time(error_later)
    real = apart.grid.push_messages

    def push(messages):  # type: ignore[no-untyped-def]
        ids = real(messages)
        if late:  # the first message comes back as an error just before the second is answered
            first = late.pop()
            stored = {first.metadata.message_id: first}
            apart.grid.waiting = stored | apart.grid.waiting
            apart.grid.nodes[102].mishap = first_time(lambda m, answer: Message(Error(5, "gone"), reply_to=m))
        return ids

    apart.grid.push_messages = push  # type: ignore[method-assign]
    apart.go()
    assert not any(report.failures for report in apart.reports)


def test_a_site_that_hangs_does_not_cost_all_patience_in_every_round(tmp_path: Path) -> None:
    apart = Apart(config(**{"rounds.rounds": 4}), raw(Candidates), tmp_path).start(replace(SOON, answer=2.0))
    transport = apart.server.transport
    apart.go(rounds=1)
    for _ in range(64):
        transport.times.note("train", 0.01)
    apart.grid.nodes[102].mishap = lambda message, answer: None
    apart.go()
    reasons = [report.failures[2].reason for report in apart.reports if 2 in report.failures]
    seconds = [float(reason.removeprefix("it did not answer within ").removesuffix(" s")) for reason in reasons]
    assert seconds[0] == 2.0
    assert seconds[1:] == pytest.approx([0.08] * (len(seconds) - 1), rel=0.01)
    assert transport.times.quiet.keys() == {"site2"}
    apart.grid.nodes[102].mishap = None
    transport.times.quiet["site2"] = 1
    assert not isinstance(apart.engine.backend.evaluate(False)[0], type(None))
    assert transport.times.quiet == {}


def test_when_a_site_is_asked_again() -> None:
    times = AnswerTimes(20.0)
    assert times.first_after("train") == 60.0  # nothing is known yet
    for seconds in (1.0, 2.0, 90.0):
        times.note("train", seconds)
    assert times.first_after("train") == 20.0
    for _ in range(10):
        times.note("train", 30.0)
    assert times.first_after("train") == 120.0
    assert times.patience("north", "train", 600.0) == 600.0
    times.silent("north")
    assert times.patience("north", "train", 600.0) == 240.0
    assert times.patience("north", "evaluate", 600.0) == 600.0
    waiting = Waiting(0.0, {1: 1000.0, 2: 50.0}, 20.0)
    asked = [second for second in range(1, 400) if 1 in waiting.due(float(second), (1,))]
    assert asked == [21, 61, 141, 301]
    assert waiting.give_up(51.0) == [2]
    assert waiting.due(400.0, (2,)) == []


def test_a_site_that_is_silent_now_and_then_is_waited_for_again_only_after_some_answers() -> None:
    """One that answers every other time must not cost all patience every other time."""
    times = AnswerTimes(20.0)
    times.note("train", 1.0)

    def answers_needed() -> int:
        needed = 0
        while times.patience("north", "train", 600.0) < 600.0:
            times.answered("north")
            needed += 1
        return needed

    assert answers_needed() == 0
    times.silent("north")
    times.answered("north")
    times.answered("north")
    assert times.patience("north", "train", 600.0) == 80.0
    assert answers_needed() == 1
    assert times.patience("south", "train", 600.0) == 600.0
    needed = []
    for _ in range(8):
        times.silent("north")
        needed.append(answers_needed())
    assert needed == [6, 12, 24, 48, 96, 192, 192, 192]
    times.answered("south")
    assert times.patience("south", "train", 600.0) == 600.0


def test_patience_is_minutes() -> None:
    assert Timeouts().answer == 600.0


def test_only_the_last_answer_is_kept_and_no_failure(tmp_path: Path) -> None:
    def question(token: str, w: float) -> Payload:
        return Payload({"round": 1, ASKED: token}, {"down": {"w": torch.tensor([w])}})

    first, second = (digest_of("train", question(token, 1.0)) for token in "ab")
    assert first == second
    others = {digest_of("train", question("a", 2.0)), digest_of("evaluate", question("a", 1.0))}
    assert len(others | {first}) == 3
    keep_answer(tmp_path, first, Payload({"loss": 0.5}, {"up": {"w": torch.tensor([3.0])}, "none": {}}))
    kept = last_answer(tmp_path, first)
    assert kept is not None
    assert kept.words == {"loss": 0.5}
    assert kept.trees["up"]["w"].tolist() == [3.0]
    assert kept.trees["none"] == {}
    assert last_answer(tmp_path, others.pop()) is None
    keep_answer(tmp_path, "x", Payload({FAILED: "broken"}))
    assert last_answer(tmp_path, "x") is None
    (tmp_path / "last-answer.safetensors").write_bytes(b"damaged")
    assert last_answer(tmp_path, first) is None
    assert set(handlers.ALWAYS_NEW) <= set(handlers.HANDLERS)
