"""The process that answers a site's messages: one fork for each, whatever becomes of it."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict

from imperfed.core.errors import ImperfedError
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import Payload, pack, unpack
from imperfed.flower.processes import adapter, answering
from imperfed.flower.processes.answering import AnsweringProcess
from imperfed.flower.processes.child import BEAT
from imperfed.flower.processes.import_warmup import ImportWarmup
from imperfed.flower.processes.kept_fork import KeptFork

NODE, SEEN = 7, list[str]()


def application(message: Message, context: Context) -> Message:
    """Do what the message says, and report what this process has seen before."""
    wish = unpack(message.content).text("wish")
    SEEN.append(wish)
    if wish == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if wish == "hang":
        time.sleep(30)
    if wish == "raise":
        raise ValueError("no")
    words = {"seen": SEEN, "node": context.node_id, "nice": os.nice(0)}
    return Message(pack(Payload(words)), reply_to=message)


def asking(wish: str, ttl: float = 60.0, kind: str = "train") -> Parcel:
    adapter.identify(run=3, node=1)
    return Parcel.of(Message(pack(Payload({"wish": wish})), NODE, kind, ttl=ttl))


def test_every_message_has_a_process_of_its_own(tmp_path: Path) -> None:
    made, ticks = AnsweringProcess.start(application, tmp_path), list[int]()

    def answer(wish: str, ttl: float = 60.0) -> Message:
        return made.answer(asking(wish, ttl), NODE, lambda: ticks.append(1)).message()

    for wish in ("one", "two"):  # nothing of the first is left when the second is answered
        words = {"seen": [wish], "node": NODE, "nice": min(19, os.nice(0) + answering.GIVES_WAY)}
        assert dict(unpack(answer(wish).content).words) == words
    assert answer("crash").error.reason == "the process that worked on it ended by signal 9"
    assert answer("raise").error.reason == "ValueError: no"
    assert answer("hang", 0.2).error.reason == f"the process that worked on it ended by signal {signal.SIGALRM.value}"
    assert unpack(answer("three").content).several("seen") == ["three"]
    assert SEEN == []
    made.pipe.close()
    os.wait()
    with pytest.raises(ImperfedError, match="the process that answers messages has ended"):
        made.answer(asking("four"), NODE, lambda: None)


def test_signs_of_life_while_there_is_nothing_to_do_and_while_a_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "LOOK", 0.02)
    made, ticks = AnsweringProcess.start(lambda message, context: time.sleep(0.3), tmp_path), list[int]()  # type: ignore[arg-type, return-value, func-returns-value]
    deadline = time.monotonic() + 60
    while not (tmp_path / BEAT).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made.answer(asking("anything"), NODE, lambda: ticks.append(1))
    assert len(ticks) > 2
    made.pipe.close()
    os.wait()


def test_signs_of_life_while_message_follows_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "LOOK", 60.0)  # so long that nothing ever waits for it
    made = AnsweringProcess.start(application, tmp_path)
    for wish in ("one", "two"):
        made.answer(asking(wish), NODE, lambda: None)
        assert (tmp_path / BEAT).exists()
        (tmp_path / BEAT).unlink()
    made.pipe.close()
    os.wait()


def test_an_answer_does_not_wait_for_imports_and_after_the_last_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(self: ImportWarmup, child: int) -> None:
        while not (tmp_path / "answered").exists():
            time.sleep(0.01)
        with (tmp_path / "learned").open("a") as file:
            file.write("once\n")

    monkeypatch.setattr(ImportWarmup, "learn", learn)
    made = AnsweringProcess.start(application, tmp_path)
    made.answer(asking("one"), NODE, lambda: None)
    (tmp_path / "answered").touch()
    made.answer(asking("two", kind="query.leave"), NODE, lambda: None)
    made.pipe.close()
    os.wait()
    assert (tmp_path / "learned").read_text() == "once\n"


def test_the_first_message_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: timers.append(seconds))
    adapter.identify(run=3, node=1)
    for kind in ("query.hello", "train"):
        answering.end_in_time(Message(RecordDict(), NODE, kind, ttl=5.0))
    assert timers == [5.0]


def test_a_parent_learns_what_its_child_had_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needed_later.py").write_text("value = 7\n")
    lessons = ImportWarmup(tmp_path / "imported")
    if (child := os.fork()) == 0:
        importlib.import_module("needed_later")
        lessons.write()
        os._exit(0)
    os.waitpid(child, 0)
    assert "needed_later" not in sys.modules
    lessons.learn(child)
    module: Any = sys.modules.pop("needed_later")
    assert module.value == 7
    assert list(tmp_path.glob("imported*")) == []


def test_a_fork_that_is_kept_answers_message_after_message_and_is_replaced_when_it_has_ended(tmp_path: Path) -> None:
    """A GPU takes seconds to set up, once per process."""
    made = AnsweringProcess.start(application, tmp_path, keeps_fork=True)

    def answer(wish: str, ttl: float = 60.0) -> Message:
        return made.answer(asking(wish, ttl), NODE, lambda: None).message()

    def seen(wish: str, ttl: float = 60.0) -> list[Any]:
        return unpack(answer(wish, ttl).content).several("seen")

    assert seen("one", ttl=0.5) == ["one"]
    time.sleep(0.7)  # the time of a message ends with it
    assert seen("two") == ["one", "two"]
    assert answer("raise").error.reason == "ValueError: no"
    assert seen("three") == ["one", "two", "raise", "three"]
    assert answer("crash").error.reason == "the process that worked on it ended by signal 9"
    assert seen("four") == ["four"]
    assert answer("hang", 0.2).error.reason == f"the process that worked on it ended by signal {signal.SIGALRM.value}"
    words = dict(unpack(answer("five").content).words)
    assert words == {"seen": ["five"], "node": NODE, "nice": min(19, os.nice(0) + answering.GIVES_WAY)}
    made.pipe.close()
    os.wait()


def test_a_fork_that_ended_between_two_questions_costs_none_of_them() -> None:
    kept = KeptFork(lambda question: (os.getpid(), question))
    (first, _), status = kept.ask("one", 1.0, lambda: None)
    assert (status, kept.ask("two", 1.0, lambda: None)) == (0, ((first, "two"), 0))
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    (second, _), _ = kept.ask("three", 1.0, lambda: None)
    assert second != first
    assert kept.pipe is not None
    kept.pipe.close()
    assert os.waitpid(second, 0) == (second, 0)  # it ends when there is no one to ask
