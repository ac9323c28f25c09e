"""The interval of a difference between two models over the same rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from imperfed.evaluation import paired
from imperfed.evaluation.paired import paired_difference


def test_the_interval_has_nineteen_of_twenty_resampled_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "DRAWS", 4000)
    draw = torch.Generator().manual_seed(0)
    first, second = torch.randn(900, generator=draw) + 1, torch.zeros(900)

    def mean(values: Tensor, rows: Tensor) -> float:
        return float(values[rows].mean())

    found = paired_difference([(900, lambda rows: mean(first, rows), lambda rows: mean(second, rows))], seed=0)
    assert found is not None
    error = float(first.std()) / 30
    assert (found.low - found.first) / error == pytest.approx(-1.96, abs=0.1)
    assert (found.high - found.first) / error == pytest.approx(1.96, abs=0.1)
