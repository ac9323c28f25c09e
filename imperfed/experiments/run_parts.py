"""The parts of a run that depend on its data: objective, evaluator and network."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from imperfed.algorithms import objectives, reference
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.data.bins import with_bins
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.seeds import SERVER, seed_of
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.config import Config
from imperfed.experiments.run_data import wanted_labels
from imperfed.models import build


def choose_objective(config: Config, data: FederatedData) -> Objective:
    """Return the chosen objective, or the reference objective for the kind of labels."""
    kind = type(data.federation.labels)
    objective = config.method.objective or reference(kind)
    if not objective.accepts(kind):
        able = [name for name, known in objectives().items() if known.accepts(kind)]
        raise UsageError(
            f"{config.run.method}: its objective {objective.name!r} learns from {objective.labels.kind} labels, but "
            f"{data.federation.name} comes with {kind.kind} labels here. Objectives that learn from those: "
            f"{', '.join(able)}; methods: imperfed list algorithms"
        )
    return objective


def refuse_misfit_data(method: Algorithm, objective: Objective, federation: Federation) -> None:
    """Refuse rows that a method or its objective cannot change, and labels that nobody can complete."""
    if (method.changes_inputs or objective.changes_inputs) and width(federation.x):
        name = method.name if method.changes_inputs else objective.name
        raise UsageError(
            f"{name} trains on changed inputs, but those of {federation.name} are sparse features, which are stored by "
            "their numbers and cannot be mixed or shaken; choose another method"
        )
    if method.complete_labels and (blank := int(federation.labels.unknown().sum())):
        raise UsageError(
            f"{method.name} learns from complete labels, but {blank} cells of {federation.name} are not annotated and "
            "no simulation has hidden them; choose pooled, which learns from the labels there are"
        )


def refuse_other_labels(config: Config, data: FederatedData) -> None:
    """Refuse a method that cannot learn from the labels that an attack or a repair leaves; nothing is rewritten."""
    labels = data.federation.labels
    if config.attack is not None:
        labels = config.attack.prepare(labels)
    if config.repair is not None and type(labels) is config.repair.labels:
        labels = config.repair.gives(wanted_labels(config)).empty(labels.classes)
    choose_objective(config, replace(data, federation=replace(data.federation, labels=labels)))


def make_evaluator(config: Config, data: FederatedData) -> Evaluator:
    """Return the evaluator of a run."""
    federation = data.federation
    between = config.fairness.between(federation.attribute, federation.classes, federation.name)
    return Evaluator.of(data.oracle, federation, between)


def shape_of(federation: Federation) -> tuple[tuple[int, ...], int, int]:
    """Return what a model must know about the data: input shape, number of classes, features of sparse inputs."""
    return tuple(federation.x.shape[1:]), len(federation.classes), width(federation.x)


def network_for(config: Config, data: FederatedData) -> Network:
    """Return the network for these data with its initial weights."""
    edges = with_bins(data, config.model.wanted_bins).scale.edges
    return make_network(config, *shape_of(data.federation), edges)


def make_network(config: Config, shape: tuple[int, ...], classes: int, features: int, edges: Tensor) -> Network:
    """Return the network with its initial weights; `edges`: of the bins of every column, if it takes any."""
    model = replace(config.model, features=config.model.features or features)
    return build(model, shape, classes, seed_of(config.run.seed, 0, SERVER, "init"), edges)
