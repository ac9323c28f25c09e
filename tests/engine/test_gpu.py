"""The captured graph against the loop, where there is a GPU; `benchmarks/gpu.py` does it for the whole catalogue."""

from __future__ import annotations

import pytest
import torch
from toy import LOCAL, Plain, differences, everything, network, world

from imperfed.algorithms.fedavg import FedAvg
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


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold()], ids=lambda a: a.name)
def test_a_captured_run_is_the_loops(algorithm: Algorithm) -> None:
    Place(GPU, "float32").prepare()
    loop = trained(algorithm, lambda bench, *_: Loop(bench))
    graph = trained(algorithm, lambda bench, on_duty, _: Graphs(bench, on_duty, Cuda(GPU)))
    assert isinstance(graph.staff, Graphs)
    assert graph.staff.programs
    assert not differences(everything(graph), everything(loop), 1e-5)
