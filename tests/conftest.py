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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run all tests that share what a fixture makes for their module, so that it is made once."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            fixtures = item._fixtureinfo.name2fixturedefs
            shared = [name for name, found in fixtures.items() if found[-1].scope == "module"]
            params = item.callspec.params if hasattr(item, "callspec") else {}
            values = [str(params[name]) for name in shared if name in params]
            if shared:
                item.add_marker(pytest.mark.xdist_group("-".join([item.path.stem, *values])))


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report page: drawing it takes longer than the small runs of most tests."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
