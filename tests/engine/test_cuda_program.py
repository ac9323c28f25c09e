"""What is recorded and what is not."""

from __future__ import annotations

import pytest
from torch import nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Exact
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.backends.cuda.program import draws
from imperfed.testing.toy import Plain, differences, engine, everything, network, one_by_one, step_by_step, world


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU()], ids=repr)
def test_a_network_that_draws_random_numbers_is_not_recorded(layer: nn.Module) -> None:
    graphs, loop = (
        engine(Algorithm(), Plain(), world(Exact), net=network(layer), make_backend=make_backend).go()
        for make_backend in (step_by_step, one_by_one)
    )
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert graphs.backend.not_captured == "a layer draws random numbers of its own"
    assert not graphs.backend.programs
    assert not differences(everything(graphs), everything(loop))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_layers_with_dropout_inside_are_known(share: float) -> None:
    layers = [
        nn.LSTM(4, 4, num_layers=2, dropout=share),
        nn.GRU(4, 4, num_layers=2, dropout=share),
        nn.MultiheadAttention(4, 2, dropout=share),
    ]
    assert [draws(layer) for layer in layers] == [share > 0] * 3
