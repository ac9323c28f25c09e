"""What a worker process does for the engine: answer exchanges, evaluate, infer labels. Results are plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.core.batch import Tree
from imperfed.core.exchange import Train
from imperfed.core.labels.validity import Validity
from imperfed.engine.backends.sequential import respond as respond_for_one
from imperfed.engine.backends.stacked import train_stacked
from imperfed.engine.backends.task_pool import attempt, portable
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population, Scores
from imperfed.engine.site import SiteUpdate

Floats = npt.NDArray[np.floating]
Answer = tuple[float, dict[str, npt.NDArray[Any]]]
"""A site's loss, and what it answers besides what is written to the shared matrices."""


@dataclass
class WorkerContext:
    """What a worker process holds: the population, and the shared matrices into which it writes the sites' answers."""

    population: Population
    uploads: Tree


def respond(
    worker: WorkerContext, round: int, number: int, sites: Sequence[int], slots: Sequence[int]
) -> list[Answer | Failure]:
    """Return each site's loss and the rest of its answer, or why it failed; several sites train in one program."""
    stacked = attempt(worker.population, (train_stacked, (round, number, sites))) if len(sites) > 1 else None
    if isinstance(stacked, list):
        return [hand_in(worker, round, number, *one) for one in zip(sites, slots, stacked, strict=True)]
    # If the program for all sites has failed, asking them one by one shows which of them fails.
    return [attempt(worker, (respond_alone, (round, number, k, slot))) for k, slot in zip(sites, slots, strict=True)]


def respond_alone(worker: WorkerContext, round: int, number: int, k: int, slot: int) -> Answer | Failure:
    """Return one site's loss and the rest of its answer."""
    return hand_in(worker, round, number, k, slot, respond_for_one(worker.population, round, number, k))


def hand_in(worker: WorkerContext, round: int, number: int, k: int, slot: int, update: SiteUpdate) -> Answer | Failure:
    """Commit what stays at the site, write its weights to the shared matrices, and return the rest of its answer."""
    population = worker.population
    site, exchange = population.site(k), population.spec.exchange(round, number)
    if failure := update.check(site.memory, exchange, population.state.servers[0]):
        return failure
    population.keep(k, update)
    matrices = worker.uploads if isinstance(exchange, Train) else {}
    for name, matrix in matrices.items():
        matrix[slot].copy_(update.up[name])
    return update.loss, portable({name: t for name, t in update.up.items() if name not in matrices})


def evaluate(worker: WorkerContext, sites: Sequence[int]) -> list[Scores]:
    """Return the scores of these sites' models."""
    return [worker.population.evaluate(k) for k in sites]


def evaluate_global(worker: WorkerContext) -> Scores:
    """Return the scores of the global model."""
    return worker.population.evaluate_global()


def validate(worker: WorkerContext, sites: Sequence[int]) -> list[Validity]:
    """Return how far these sites' models agree with the rows that they hold out."""
    return [worker.population.validate(k) for k in sites]


def infer_labels(worker: WorkerContext, sites: Sequence[int]) -> list[Floats | None]:
    """Return the labels that these sites infer for their training rows."""
    inferred = [worker.population.infer_labels(k) for k in sites]
    return [None if labels is None else labels.numpy() for labels in inferred]
