"""Bins of columns, learned from counts over a grid instead of values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels import Exact
from imperfed.data.bins import CELLS, LINES, count_cells, edges_of, with_bins
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.testing.toy import world


def drawn(*columns: Tensor) -> Tensor:
    x = torch.stack(columns, 1)
    return (x - x.mean(0)) / x.std(0)


def gaussian(n: int = 4000) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(0))


def test_every_value_is_counted_in_the_cell_where_it_lies() -> None:
    x = torch.tensor([[-100.0, 0.0], [float(LINES[3] + LINES[4]) / 2, 0.0], [100.0, 0.0]])
    counts = count_cells(x)
    assert counts.shape == (2, CELLS)
    assert counts[0].nonzero().flatten().tolist() == [0, 4, CELLS - 1]
    assert counts[1].max() == 3


@pytest.mark.parametrize("shape", ["normal", "skewed"])
def test_edges_are_quantiles_up_to_the_width_of_a_cell(shape: str) -> None:
    values = gaussian() if shape == "normal" else gaussian().exp()
    x = drawn(values)
    edges = edges_of([count_cells(x)], 8)[0]
    for level, edge in zip(range(1, 8), edges[1:-1].tolist(), strict=True):
        exact = float(np.quantile(x.numpy(), level / 8))
        cell = int(torch.bucketize(torch.tensor(exact), LINES))
        assert LINES[cell - 2] < edge < LINES[cell + 1], level


def test_counts_of_sites_add_up_to_those_of_all_rows() -> None:
    x = drawn(gaussian(), gaussian().square())
    apart = [count_cells(part) for part in x.split([100, 1, 2000, 1899])]
    assert torch.equal(edges_of(apart, 16), edges_of([count_cells(x)], 16))


def test_a_column_has_as_many_bins_as_its_values_allow() -> None:
    n = 1000
    rare = torch.zeros(n)
    rare[:100] = torch.linspace(1, 50, 100)  # nine in ten are 0
    edges = edges_of([count_cells(drawn((torch.arange(n) % 2).float(), rare, torch.arange(n) % 3 + 0.0))], 8)
    used = (edges.diff(dim=1) > 0).sum(1).tolist()
    assert used[0] == 1
    assert used[1] >= 6
    assert used[2] == 2
    assert (edges.diff(dim=1) >= 0).all()


def test_a_constant_column_has_no_bins() -> None:
    assert not edges_of([count_cells(torch.zeros(20, 1))], 4).diff(dim=1).any()


def test_inputs_that_are_not_scaled_are_refused() -> None:
    with pytest.raises(DataError, match=r"input 1: most values are more than 8 away from 0; .*standardise = true"):
        edges_of([count_cells(torch.stack([gaussian(50), 1000 + gaussian(50)], 1))], 4)


def test_bins_are_learned_from_training_rows_once_and_saved_with_the_scale() -> None:
    federation, oracle = world(Exact)
    data = with_bins(FederatedData(federation, oracle, {}, Scale.none()), 4)
    assert torch.equal(data.scale.edges, edges_of([count_cells(federation.x)], 4))
    assert torch.equal(Scale.of_tree(data.scale.tree()).edges, data.scale.edges)
    assert with_bins(replace(data, federation=replace(federation, x=-federation.x)), 4).scale is data.scale
    assert not len(with_bins(FederatedData(federation, oracle, {}, Scale.none()), 0).scale.edges)
