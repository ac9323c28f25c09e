"""Work for the GPU, recorded once as a CUDA graph and replayed without the host's asking for each of its operations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch

STREAMS = 32
"""Pieces of work computed side by side; beyond that the GPU only switches more."""
TRIALS = 3
"""Before the record: libraries choose their kernels and set memory aside."""


class Capturer(Protocol):
    """How a program's work is carried out."""

    def side_by_side(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """The results of work(0) .. work(count - 1), none of which needs another's."""

    def capture(self, work: Callable[[], None], trial: Callable[[], None]) -> Callable[[], None]:
        """Return what stands for a call of `work` from now on; `trial` does everything that it does, but less of it."""


class CudaCapturer:
    """Work as one graph, its pieces on streams of their own."""

    def __init__(self, device: torch.device) -> None:
        self.streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]

    def side_by_side(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """Each piece on one of the streams."""
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
        """A graph of the work. In the trials before, a wait for the host is found out: it cannot be recorded."""
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
        warnings.simplefilter("ignore")  # that it does not find out every wait: what it misses, the record finds
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
