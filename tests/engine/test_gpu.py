"""The captured graph against the loop, where there is a GPU; `benchmarks/gpu.py` does it for the whole catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from toy import LOCAL, Plain, Watched, differences, everything, network, world

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.mime import Mime
from imperfed.algorithms.scaffold import Scaffold
from imperfed.core import Algorithm
from imperfed.device import Place
from imperfed.engine.course import Rounds
from imperfed.engine.graphs import Graphs
from imperfed.engine.loop import Loop
from imperfed.engine.record import Cuda
from imperfed.engine.rounds import Engine, Hire
from imperfed.evaluate import Evaluator
from imperfed.labels import Exact

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")


GPU = torch.device("cuda", 0)


def trained(algorithm: Algorithm, hire: Hire) -> Engine:
    federation, oracle = world(Exact)
    how, judge = Rounds(rounds=3, participation=0.75), Evaluator(oracle)
    e = Engine(algorithm, Plain(), network(), federation, judge, LOCAL, how, 0, None, hire, GPU)
    e.run(lambda report: None, lambda: False, None)
    return e


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), Mime()], ids=lambda a: a.name)
def test_a_captured_run_is_the_loops(algorithm: Algorithm) -> None:
    Place(GPU, "float32").prepare()
    loop = trained(algorithm, lambda bench, *_: Loop(bench))
    graph = trained(algorithm, lambda bench, on_duty, _: Graphs(bench, on_duty, Cuda(GPU)))
    assert isinstance(graph.staff, Graphs)
    assert graph.staff.programs
    assert not differences(everything(graph), everything(loop), 1e-5)


def test_both_gradients_of_mimes_step_have_the_same_dropout() -> None:
    """At y = x they cancel, whatever a site drew: every site takes the server's step."""
    federation, oracle = world(Exact)
    net, local, how = network(nn.Dropout(0.5)), replace(LOCAL, steps=1), Rounds(rounds=1)
    parts = (Mime(), Plain(), net, federation, Evaluator(oracle), local, how, 0, None, lambda bench, *_: Loop(bench))
    w = Watched(*parts, GPU).go().seen[1]["w"]
    torch.testing.assert_close(w, w[:1].expand_as(w), rtol=0, atol=1e-6)
