"""Answers a site's messages, each in a process forked from one that has everything loaded.

A process of its own for every message keeps nothing between two messages: an answer depends on the message, the files
and the stored state alone, whatever a library remembers, and a task that hangs or crashes takes nothing else along. The
application is this package's own, as installed here: a coordinator cannot send code.

A site on a GPU keeps its fork (`kept_fork.py`), since a GPU takes seconds to set up in each process.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict

from imperfed.core.errors import ImperfedError
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.processes import adapter
from imperfed.flower.processes.child import BEAT
from imperfed.flower.processes.import_warmup import ImportWarmup
from imperfed.flower.processes.kept_fork import GIVES_WAY, KeptFork
from imperfed.flower.processes.parent_watch import end_with

Application = Callable[[Message, Context], Message]
LOOK = 2.0  # seconds between two signs of life
FIRST_MESSAGE, LAST_MESSAGE = "query.hello", "query.leave"
APP_FAILED = 2
"""Flower's code for an error inside a ClientApp."""


@dataclass
class AnsweringProcess:
    """The process that forks, as seen from the one that talks to the coordinator."""

    pipe: Connection

    @classmethod
    def start(cls, app: Application, home: Path, keeps_fork: bool = False) -> AnsweringProcess:
        """Fork it from this process, which must have no threads yet.

        `keeps_fork`: whether all messages are answered in one fork, rather than each in its own.
        """
        ours, theirs = Pipe()
        if os.fork() == 0:
            ours.close()
            try:
                work(theirs, app, home, KeptFork(partial(serve, app)) if keeps_fork else None)
            finally:
                os._exit(0)
        theirs.close()
        return cls(ours)

    def answer(self, parcel: Parcel, node: int, tick: Callable[[], None]) -> Parcel:
        """Return the answer to a message; `tick` is called again and again until it is there."""
        try:
            self.pipe.send((parcel, node))
            while not self.pipe.poll(LOOK):
                tick()
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise ImperfedError("the process that answers messages has ended") from error
        assert isinstance(answer, Parcel)
        return answer


def work(pipe: Connection, app: Application, home: Path, kept: KeptFork | None) -> None:
    """Answer messages until the other end of the pipe is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.collect()
    gc.freeze()  # a collection in a fork would look at, and so copy, everything that is loaded: 0.2 s of a message
    warmup, beat = ImportWarmup(home / "imported"), home / BEAT
    while True:
        while not pipe.poll(LOOK):
            beat.touch()
        try:
            parcel, node = pipe.recv()
        except EOFError:
            return
        beat.touch()  # messages may follow one another so fast that nothing above or below ever waits
        if kept is not None:
            pipe.send(in_the_kept_fork(kept, parcel, node, beat.touch))
            continue
        answer, child = in_a_fork(app, parcel, node, warmup, beat.touch)
        pipe.send(answer)
        if parcel.record.metadata.message_type != LAST_MESSAGE:
            warmup.learn(child)  # only now: importing takes seconds where many sites share a machine


def in_a_fork(
    app: Application, parcel: Parcel, node: int, warmup: ImportWarmup, tick: Callable[[], None]
) -> tuple[Parcel, int]:
    """Return the answer of an application in a process of its own, or an error that says how this ended.

    The second is the number of that process, which has ended.
    """
    there, here = Pipe(duplex=False)
    if (child := os.fork()) == 0:
        there.close()
        _answer_and_exit(app, parcel, node, warmup, here)
    here.close()
    answer: Parcel | None = None
    try:
        while not there.poll(LOOK):
            tick()
        answer = there.recv()
    except (EOFError, OSError):  # it ended without an answer
        pass
    _, status = os.waitpid(child, 0)
    there.close()
    return answer or unanswered(parcel, node, status), child


def in_the_kept_fork(kept: KeptFork, parcel: Parcel, node: int, tick: Callable[[], None]) -> Parcel:
    """Return the answer of the fork that is kept, or an error that says how it ended; the next has a new one."""
    answer, status = kept.ask((parcel, node), LOOK, tick)
    return answer or unanswered(parcel, node, status)


def unanswered(parcel: Parcel, node: int, status: int) -> Parcel:
    """Return an error that says how a process ended that was working on a message."""
    ended = f"by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"with code {os.WEXITSTATUS(status)}"
    adapter.identify(parcel.record.metadata.run_id, node)
    error = Error(APP_FAILED, f"the process that worked on it ended {ended}")
    return Parcel.of(Message(error, reply_to=parcel.message()))


def serve(app: Application, asked: tuple[Parcel, int]) -> Parcel:
    """Answer one of many messages in this process."""
    try:
        return answered(app, *asked)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # the time of this message, not of the next


def _answer_and_exit(app: Application, parcel: Parcel, node: int, warmup: ImportWarmup, pipe: Connection) -> None:
    """Send an application's answer through a pipe and end this process, without cleaning up what was inherited."""
    code = 1
    try:
        end_with(os.getppid())
        os.nice(GIVES_WAY)
        pipe.send(answered(app, parcel, node))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        warmup.write()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answered(app: Application, parcel: Parcel, node: int) -> Parcel:
    """Return an application's answer to a message; an error inside it is an answer, too."""
    message = parcel.message()
    adapter.identify(message.metadata.run_id, node)
    end_in_time(message)
    try:
        reply = app(message, Context(message.metadata.run_id, node, {}, RecordDict(), {}))
    except Exception as error:
        traceback.print_exc()
        reply = Message(Error(APP_FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
    return Parcel.of(reply)


def end_in_time(message: Message) -> None:
    """Let this process end when a message has expired: its answer would not be taken any more.

    Only the first message of all may take longer: files that are read once need not be read again.
    """
    if message.metadata.message_type != FIRST_MESSAGE:
        signal.setitimer(signal.ITIMER_REAL, message.metadata.ttl)
