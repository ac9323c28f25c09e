"""The catalogue, asked by what a method does instead of by its name."""

from __future__ import annotations

from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Labels
from imperfed.core.network import Layout
from imperfed.core.objective import Objective
from imperfed.testing.toy import network


def algorithms(kind: type[Labels] | None = None) -> list[Algorithm]:
    """Return every algorithm with its default settings; with `kind`, those that learn from such labels."""
    every = [method() for method in catalogue().values() if issubclass(method, Algorithm)]
    return [a for a in every if kind is None or a.objective is None or a.objective.accepts(kind)]


def objectives() -> list[Objective]:
    """Return every objective with its default settings."""
    return [method() for method in catalogue().values() if issubclass(method, Objective)]


def overriding(*hooks: str, kind: type[Labels] | None = None) -> list[Algorithm]:
    """Return the algorithms that define all of these hooks themselves."""
    return [algorithm for algorithm in algorithms(kind) if algorithm.overridden.issuperset(hooks)]


def averaging() -> Algorithm:
    """Return the algorithm that replaces no hook: plain averaging."""
    (plain,) = (a for a in algorithms() if not a.overridden and not a.pools_data)
    return plain


def shares_nothing(algorithm: Algorithm) -> bool:
    """Say whether no weight ever leaves a site, or all rows are pooled."""
    layout = Layout.of(algorithm.build(network()), algorithm.is_personal)
    return algorithm.pools_data or layout.shared == 0
