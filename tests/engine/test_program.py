"""What is recorded and what is not."""

from __future__ import annotations

import pytest
from torch import nn
from toy import Direct, Plain, differences, engine, everything, network, world

from imperfed.algorithms.fedavg import FedAvg
from imperfed.engine.graphs import Graphs
from imperfed.engine.loop import Loop
from imperfed.engine.program import draws
from imperfed.labels import Exact


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU()], ids=repr)
def test_a_network_that_draws_random_numbers_is_not_recorded(layer: nn.Module) -> None:
    graphs = engine(
        FedAvg(), Plain(), world(Exact), net=network(layer), hire=lambda bench, n, _: Graphs(bench, n, Direct())
    ).go()
    assert isinstance(graphs.staff, Graphs)
    assert graphs.staff.why == "a layer draws random numbers of its own"
    assert not graphs.staff.programs
    loop = engine(FedAvg(), Plain(), world(Exact), net=network(layer), hire=lambda bench, *_: Loop(bench)).go()
    assert not differences(everything(graphs), everything(loop))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_layers_with_dropout_inside_are_known(share: float) -> None:
    layers = [
        nn.LSTM(4, 4, num_layers=2, dropout=share),
        nn.GRU(4, 4, num_layers=2, dropout=share),
        nn.MultiheadAttention(4, 2, dropout=share),
    ]
    assert [draws(layer) for layer in layers] == [share > 0] * 3
