"""What holds for every test: no GPU unless asked for, one thread, the same examples in property tests every time."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("imperfed.testing")  # failures of the contract suite show the values compared

# Tests fork workers, which a process that has a GPU in use cannot. tests/engine/test_cuda_graph.py needs it set to "0".
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
torch.set_num_threads(1)  # for the small tensors of most tests, more threads only get into each other's way
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report pages: drawing them takes longer than the small runs of most tests."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    monkeypatch.setattr("imperfed.experiments.comparison.write_comparison_page", lambda folder: None)
