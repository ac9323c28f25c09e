"""GPU work captured once as a CUDA graph and replayed, so that the host need not launch each operation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch

STREAMS = 32
"""The number of streams for pieces of work side by side; with more, the GPU only switches more often."""
TRIALS = 3
"""The number of trial runs before the capture, in which libraries choose their kernels and reserve memory."""


class Capturer(Protocol):
    """How a program's work is carried out."""

    def side_by_side(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """Return the results of work(0) .. work(count - 1), which do not depend on each other."""

    def capture(self, work: Callable[[], None], trial: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replaces `work`; `trial` does the same things as `work`, but fewer of them."""


class CudaCapturer:
    """Captures work as one graph, with its pieces on several streams."""

    def __init__(self, device: torch.device) -> None:
        self.streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]

    def side_by_side(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """Run each piece on one of the streams."""
        here, streams, results = torch.cuda.current_stream(), self.streams[:count], []
        for stream in streams:
            stream.wait_stream(here)
        for m in range(count):
            with torch.cuda.stream(streams[m % len(streams)]):
                results.append(work(m))
        for stream in streams:
            here.wait_stream(stream)
        return results

    def capture(self, work: Callable[[], None], trial: Callable[[], None]) -> Callable[[], None]:
        """Return the replay of a graph of the work. The trials reveal a wait of the host, which cannot be captured."""
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for number in range(TRIALS):
                with no_waiting() if number else nullcontext():
                    trial()
        here.wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


@contextmanager
def no_waiting() -> Iterator[None]:
    """Make a wait of the host for the device an error."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it may miss a wait; the capture itself then fails
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
