"""The captured graph against the loop, where there is a GPU; `benchmarks/gpu.py` does it for the whole catalogue."""

from __future__ import annotations

from dataclasses import replace
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
from imperfed.engine.local_training import Local
from imperfed.engine.population import Population
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from imperfed.testing.cases import Case
from imperfed.testing.recipes import RECIPES, recipes_of
from imperfed.testing.toy import LOCAL, Plain, as_images, differences, everything, network, one_by_one, world
from tests.support.far_away import by_hand
from tests.support.methods import averaging, overriding

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")


GPU = torch.device("cuda", 0)
KINDS_OF_STEP = [
    averaging(),
    *(
        next(a for a in overriding(hook, kind=Exact) if a.objective is None)
        for hook in ("correct", "local_step", "init_site")
    ),
]
"""Plain steps, corrected gradients, steps of a method's own, and sites with a memory; none has a loss of its own."""


def trained(algorithm: Algorithm, make_backend: MakeBackend, local: Local = LOCAL) -> Engine:
    federation, oracle = as_images(world(Exact)) if local.augment else world(Exact)
    how, evaluator, net = Rounds(rounds=3, participation=0.75), Evaluator(oracle), network(images=bool(local.augment))
    e = Engine(algorithm, Plain(), net, federation, evaluator, local, how, 0, None, make_backend, GPU)
    e.run(lambda report: None, lambda: False, None)
    return e


def captured(population: Population, on_duty: int, workers: int) -> CudaGraphBackend:
    return CudaGraphBackend(population, on_duty, CudaCapturer(GPU))


@pytest.mark.parametrize("algorithm", KINDS_OF_STEP, ids=lambda a: a.name)
def test_a_captured_run_is_the_loops(algorithm: Algorithm) -> None:
    Hardware(GPU, "float32").prepare()
    loop = trained(algorithm, one_by_one)
    graph = trained(algorithm, captured)
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


KINDS_OF_RECIPE = [
    (algorithm, recipe) for algorithm in KINDS_OF_STEP for recipe in recipes_of(Case(algorithm, Plain()))
]


@pytest.mark.parametrize(("algorithm", "recipe"), KINDS_OF_RECIPE, ids=lambda one: getattr(one, "name", one))
def test_every_recipe_is_captured(algorithm: Algorithm, recipe: str) -> None:
    """A rate that changes is filled in before a replay, Adam counts its steps, every site is clipped by itself."""
    Hardware(GPU, "float32").prepare()
    loop, graph = (trained(algorithm, make_backend, RECIPES[recipe]) for make_backend in (one_by_one, captured))
    assert isinstance(graph.backend, CudaGraphBackend)
    assert graph.backend.not_captured is None
    assert graph.backend.programs
    assert not differences(everything(graph), everything(loop), 1e-5)


@pytest.mark.parametrize(
    "algorithm", [a for a in overriding("move", kind=Exact) if a.objective is None], ids=lambda a: a.name
)
def test_a_changing_rate_is_captured_whatever_the_step(algorithm: Algorithm) -> None:
    """No step may ask for the value of a rate that is a tensor: the host would wait."""
    Hardware(GPU, "float32").prepare()
    if "schedule" in algorithm.fixed_recipe:
        pytest.skip("the method has rates of its own")
    loop, graph = (trained(algorithm, make_backend, RECIPES["cosine"]) for make_backend in (one_by_one, captured))
    assert isinstance(graph.backend, CudaGraphBackend)
    assert graph.backend.not_captured is None
    assert not differences(everything(graph), everything(loop), 1e-5)


@pytest.mark.parametrize("recipe", ["adam", "cosine", "augment"])
def test_sites_with_more_and_fewer_steps_follow_a_recipe(recipe: str) -> None:
    """Passes instead of steps: no stack, and a site that has made all its steps keeps its state."""
    Hardware(GPU, "float32").prepare()
    local = replace(RECIPES[recipe], epochs=2)
    loop, graph = (trained(averaging(), make_backend, local) for make_backend in (one_by_one, captured))
    assert not differences(everything(graph), everything(loop), 1e-5)
