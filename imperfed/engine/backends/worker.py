"""What a worker process does for the engine: answer an exchange, evaluate, tell labels. Results are plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from imperfed.core.batch import Tree
from imperfed.engine import site as at_site
from imperfed.engine.backends.stacked import train_together
from imperfed.engine.backends.task_pool import Failure, attempt, portable
from imperfed.engine.site import Scores, SiteRuntime, SiteUpdate


@dataclass
class WorkerContext:
    """What a worker process holds: its bench, and the shared matrix it writes a site's answer into."""

    runtime: SiteRuntime
    uploads: Tree


def respond(post: WorkerContext, round: int, number: int, sites: Sequence[int], slots: Sequence[int]) -> list[Any]:
    """Each site's loss and further answers, or why it failed; in one program where there are several."""
    together = attempt(post.runtime, (train_together, (round, sites))) if len(sites) > 1 else None
    if isinstance(together, list):
        return [hand_in(post, round, number, *one) for one in zip(sites, slots, together, strict=True)]
    # Where the program for all has failed, one by one it will show which of them fails.
    return [attempt(post, (respond_alone, (round, number, k, slot))) for k, slot in zip(sites, slots, strict=True)]


def respond_alone(post: WorkerContext, round: int, number: int, site: int, slot: int) -> Any:
    """A site's loss and further answers."""
    return hand_in(post, round, number, site, slot, at_site.respond(post.runtime, round, number, site))


def hand_in(post: WorkerContext, round: int, number: int, site: int, slot: int, answer: SiteUpdate) -> Any:
    """What a site answers beside its weights, which are left in the shared matrix; its own memory is kept."""
    if fault := answer.fault(post.runtime.state):
        return Failure(f"its answer was refused: {fault}")
    answer.keep(post.runtime, site)
    matrices = post.uploads if post.runtime.spec.algorithm.exchanges(round)[number].trains else {}
    for name, matrix in matrices.items():
        matrix[slot].copy_(answer.up[name])
    return answer.loss, portable({name: t for name, t in answer.up.items() if name not in matrices})


def evaluate(post: WorkerContext, site: int) -> Scores:
    """Figures of one site's model."""
    return at_site.evaluate(post.runtime, site)


def evaluate_common(post: WorkerContext) -> Scores:
    """Figures of the global model."""
    return at_site.evaluate_common(post.runtime)


def infer_labels(post: WorkerContext, site: int) -> Any:
    """The labels that a training site worked out."""
    belief = at_site.infer_labels(post.runtime, site)
    return None if belief is None else belief.numpy()
