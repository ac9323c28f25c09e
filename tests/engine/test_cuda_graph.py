"""The captured graph against the loop, where there is a GPU; `benchmarks/gpu.py` does it for the whole catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.mime import Mime
from imperfed.algorithms.scaffold import Scaffold
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Exact
from imperfed.engine.backends.cuda.capture import CudaCapturer
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from tests.support.toy import LOCAL, Plain, Watched, differences, everything, network, one_by_one, world

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")


GPU = torch.device("cuda", 0)


def trained(algorithm: Algorithm, make_backend: MakeBackend) -> Engine:
    federation, oracle = world(Exact)
    how, evaluator = Rounds(rounds=3, participation=0.75), Evaluator(oracle)
    e = Engine(algorithm, Plain(), network(), federation, evaluator, LOCAL, how, 0, None, make_backend, GPU)
    e.run(lambda report: None, lambda: False, None)
    return e


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), Mime()], ids=lambda a: a.name)
def test_a_captured_run_is_the_loops(algorithm: Algorithm) -> None:
    Hardware(GPU, "float32").prepare()
    loop = trained(algorithm, one_by_one)
    graph = trained(algorithm, lambda population, on_duty, _: CudaGraphBackend(population, on_duty, CudaCapturer(GPU)))
    assert isinstance(graph.backend, CudaGraphBackend)
    assert graph.backend.programs
    assert not differences(everything(graph), everything(loop), 1e-5)


def test_both_gradients_of_mimes_step_have_the_same_dropout() -> None:
    """At y = x they cancel, whatever a site drew: every site takes the server's step."""
    federation, oracle = world(Exact)
    net, local, how = network(nn.Dropout(0.5)), replace(LOCAL, steps=1), Rounds(rounds=1)
    w = (
        Watched(Mime(), Plain(), net, federation, Evaluator(oracle), local, how, 0, None, one_by_one, GPU)
        .go()
        .seen[1]["w"]
    )
    torch.testing.assert_close(w, w[:1].expand_as(w), rtol=0, atol=1e-6)
