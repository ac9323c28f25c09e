"""The inputs of batches: those of lazy rows are read ahead, while the last ones are computed with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import torch
from torch import Tensor

from imperfed.core.lazy import LazyRows

AHEAD = 3
"""How many batches, or stretches of small ones, are read ahead."""
PART = 1024
"""The most rows that a network sees at once outside training."""
NUMBERS = 1 << 25
"""The most input numbers that it sees at once there: 128 MB, which counts for images above 100 x 100 pixels."""


def gathered(x: Tensor, wanted: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the inputs of these rows, one batch or stretch of batches after the other."""
    if not isinstance(x, LazyRows):
        for at in wanted:
            yield x.index_select(0, at)
        return
    rest = iter([at.cpu() for at in wanted])  # now: later this would wait for all that a GPU still has to do
    with ThreadPoolExecutor(1) as reader:
        coming = deque(reader.submit(x.index_select, 0, at) for at in islice(rest, AHEAD))
        while coming:
            now = coming.popleft().result()
            coming.extend(reader.submit(x.index_select, 0, at) for at in islice(rest, 1))
            yield now


def in_parts(x: Tensor) -> Iterator[Tensor]:
    """Yield all inputs in parts that a network can take at once."""
    rows = max(1, min(PART, NUMBERS // max(1, x.shape[1:].numel())))
    return gathered(x, torch.arange(len(x)).split(rows)) if isinstance(x, LazyRows) else iter(x.split(rows))
