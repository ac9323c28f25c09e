"""A fork that answers question after question, and is replaced when it has ended."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from imperfed.flower.processes.parent_watch import end_with

GIVES_WAY = 10
"""How much nicer it is than what keeps a site connected: a machine that is busy must not seem to be gone."""


class KeptFork:
    """The fork, as seen from its parent; it is made when it is first needed."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.child = 0
        self.pipe: Connection | None = None

    def ask(self, question: Any, look: float, tick: Callable[[], None]) -> tuple[Any, int]:
        """Return the answer to a question, and 0; if the fork ends over it, None and the status with which it ended.

        `tick` is called every `look` seconds until then.
        """
        if not self.child or os.waitpid(self.child, os.WNOHANG)[0]:  # such as one that ran out of memory since
            self._fork()
        assert self.pipe is not None
        try:
            self.pipe.send(question)
            while not self.pipe.poll(look):
                tick()
            return self.pipe.recv(), 0
        except (EOFError, OSError):
            _, status = os.waitpid(self.child, 0)
            self.child = 0
            return None, status

    def _fork(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        self.pipe, theirs = Pipe()
        if (child := os.fork()) == 0:
            self.pipe.close()
            _answer_all(self.answer, theirs)
        theirs.close()
        self.child = child


def _answer_all(answer: Callable[[Any], Any], pipe: Connection) -> None:
    """Answer questions until the other end of the pipe is closed, and end this process."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with(os.getppid())
        os.nice(GIVES_WAY)
        while True:
            pipe.send(answer(pipe.recv()))
    except EOFError:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
