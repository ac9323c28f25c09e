"""The captured graph against the loop, where there is a GPU; `benchmarks/gpu.py` does it for the whole catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Exact
from imperfed.core.registry import entry_points
from imperfed.engine.backends.cuda.capture import CudaCapturer
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from imperfed.testing.toy import LOCAL, Plain, differences, everything, network, one_by_one, world
from tests.support.far_away import by_hand
from tests.support.methods import averaging, overriding

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")


GPU = torch.device("cuda", 0)
KINDS_OF_STEP = [averaging(), *(overriding(hook, kind=Exact)[0] for hook in ("correct", "local_step", "init_site"))]
"""Plain steps, corrected gradients, steps of a method's own, and sites with a memory."""


def trained(algorithm: Algorithm, make_backend: MakeBackend) -> Engine:
    federation, oracle = world(Exact)
    how, evaluator = Rounds(rounds=3, participation=0.75), Evaluator(oracle)
    e = Engine(algorithm, Plain(), network(), federation, evaluator, LOCAL, how, 0, None, make_backend, GPU)
    e.run(lambda report: None, lambda: False, None)
    return e


@pytest.mark.parametrize("algorithm", KINDS_OF_STEP, ids=lambda a: a.name)
def test_a_captured_run_is_the_loops(algorithm: Algorithm) -> None:
    Hardware(GPU, "float32").prepare()
    loop = trained(algorithm, one_by_one)
    graph = trained(algorithm, lambda population, on_duty, _: CudaGraphBackend(population, on_duty, CudaCapturer(GPU)))
    assert isinstance(graph.backend, CudaGraphBackend)
    assert graph.backend.programs
    assert not differences(everything(graph), everything(loop), 1e-5)


def test_a_method_of_a_plug_in_is_captured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(by_hand(tmp_path))
    for known in (entry_points, catalogue):
        known.cache_clear()
    try:
        algorithm = catalogue()["far-away"]()
        assert type(algorithm).__module__ == "far_away"
        test_a_captured_run_is_the_loops(algorithm)
    finally:
        monkeypatch.undo()
        for known in (entry_points, catalogue):
            known.cache_clear()
