"""The methods of a kind: those of the catalogue that are for its labels, so that a new one takes part by itself."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.algorithms import catalogue
from imperfed.benchmark.kinds import BenchmarkKind, BenchmarkSet
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import KINDS, Labels
from imperfed.core.objective import Objective
from imperfed.defences import defences


def members(kind: BenchmarkKind, dataset: BenchmarkSet) -> tuple[str, ...]:
    """Return the methods that are compared on a dataset, references last."""
    known = defended(kind) if kind.members == "defences" else made_for(kind, KINDS[dataset.labels])
    return tuple(dict.fromkeys((*known, *kind.methods, *kind.references)))


def defended(kind: BenchmarkKind) -> Iterator[str]:
    """Yield every defence of the catalogue around the kind's first method."""
    yield from (f"{kind.methods[0]} defence={name}" for name in defences() if name not in kind.left_out)


def made_for(kind: BenchmarkKind, labels: type[Labels]) -> Iterator[str]:
    """Yield plain averaging of the reference objective, and every method and objective made for these labels."""
    kinds = {dataset.labels for dataset in kind.datasets}

    def fits(objective: type[Objective] | Objective | None) -> bool:
        return objective is not None and objective.labels.kind in kinds and objective.accepts(labels)

    yield "fedavg"
    for name, found in catalogue().items():
        if name in (*kind.left_out, *kind.references):
            continue
        if issubclass(found, Algorithm):
            if found.made_for is labels or fits(found().objective):
                yield name
        elif fits(found) and not found.reference:
            yield name
