"""What holds for every test: no GPU unless asked for, and property tests that draw the same examples every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Tests fork workers, which a process that has a GPU in use cannot. tests/engine/test_cuda_graph.py needs it set to "0".
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report page: drawing it takes longer than the small runs of most tests."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
