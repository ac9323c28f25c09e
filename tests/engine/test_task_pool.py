"""Where workers cannot be forked, the calling process does their work, says so, and the results are the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Exact
from imperfed.engine.backends.process import ONE_PROCESS, ProcessBackend
from imperfed.engine.backends.task_pool import InlinePool, ProcessPool, unforkable
from imperfed.engine.local_training import Local
from imperfed.testing.toy import Plain, Watched, differences, engine, everything, world


@contextmanager
def thread_called(name: str) -> Iterator[None]:
    """A thread that the system knows by this name, as torch names those it keeps for a GPU."""
    named, ended = threading.Event(), threading.Event()

    def live() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        named.set()
        ended.wait()

    thread = threading.Thread(target=live)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def made() -> tuple[Watched, type]:
    """Three rounds by two workers, and who did them."""
    e = engine(Algorithm(), Plain(), world(Exact), Local(steps=3, batch=4, lr=0.1), rounds=3, workers=2).go()
    assert isinstance(e.backend, ProcessBackend)
    return e, type(e.backend.pool)


def test_a_process_with_autograds_threads_for_a_gpu_does_the_work_itself() -> None:
    if unforkable():
        pytest.skip("another test has used this machine's GPU")
    forked, workers = made()
    with thread_called("pt_autograd_0"):
        alone, one = made()
    with thread_called("pt_elsewhere"):
        assert not unforkable()
    assert (workers, one) == (ProcessPool, InlinePool)
    assert not differences(everything(forked), everything(alone))
    told = [note for report in alone.reports for note in report.notes]
    assert told == [ONE_PROCESS]
    assert not any(report.notes for report in forked.reports)
