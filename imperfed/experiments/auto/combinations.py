"""What `auto` tries: methods that declare that they fit the labels, a few models, a few recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from imperfed.algorithms import catalogue, objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from imperfed.data.bins import with_bins
from imperfed.data.federate import FederatedData
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.config import Config
from imperfed.experiments.run_parts import network_for
from imperfed.models import models

MODELS = {1: ("mlp-ple", "mlp", "logistic"), 2: ("text",), 3: ("cnn", "mlp")}
"""The models to try by the dimensions of an input: tables, sparse rows, images."""
RECIPES: tuple[dict[str, Any], ...] = (
    {},
    {"local.optimizer": "adamw", "local.lr": 0.003, "local.weight_decay": 0.01},
    {"local.optimizer": "sgd", "local.lr": 0.05, "local.weight_decay": 0.0001},
    {"local.optimizer": "adamw", "local.lr": 0.0005, "local.weight_decay": 0.1},
)
"""The first is what a method does if it is run by its name: nobody who names it should end better than here."""
OWN_STEPS: tuple[dict[str, Any], ...] = ({}, {"local.lr": 0.003}, {"local.lr": 0.0005})
"""For methods that make the steps of an optimizer of their own."""
PASSES: dict[str, Any] = {"local.epochs": 2, "local.min_steps": 20, "local.max_steps": 100, "local.batch": 32}
"""How long a site trains in a round: a small one makes several passes, a large one a part of a pass."""


@dataclass(frozen=True)
class Combination:
    """A method with its model, its settings and its recipe, which a search may try."""

    method: str
    model: str
    settings: Mapping[str, Any]
    """Of the method, the objective and the recipe."""
    config: Config
    recipe: int = 0
    """The number of its recipe: trials go on beside those of other recipes, which may be slower or faster to learn."""

    @property
    def alone(self) -> bool:
        """Whether every site trains for itself."""
        return keeps_everything(self.config.method)


def combinations_to_try(request: AutoRequest, data: FederatedData) -> list[Combination]:
    """Return everything to try, what matters most first: any beginning of the list has all methods or most of them."""
    federation, found = data.federation, dict[str, Combination]()
    wanted = _models(request, data)
    ways = list(_methods(type(federation.labels)))
    if not ways:
        raise UsageError(f"auto: no method of the catalogue declares that it fits {federation.labels.title}")
    usual = [request.base.model.name] if request.base.model.name in wanted else wanted
    for number, model in [(0, model) for model in usual] + list(product(range(1, len(RECIPES)), wanted)):
        for method, own in ways:
            recipes = _recipes(method)
            if number < len(recipes):
                settings = (PASSES if number else {}) | {"model.name": model} | recipes[number] | own
                one = Combination(method, model, recipes[number] | own, request.base, number)
                _add(found, request, data, one, settings)
    return list(found.values())


def _add(
    found: dict[str, Combination],
    request: AutoRequest,
    data: FederatedData,
    one: Combination,
    settings: Mapping[str, Any],
) -> None:
    """Add a combination unless it repeats another one or shares nothing between sites though it should."""
    fixed = request.fixed
    free = {name: value for name, value in settings.items() if name not in fixed}
    if any(name in fixed for name in ("local.steps", "local.epochs")):  # the user says how long a site trains
        free = {name: value for name, value in free.items() if name not in PASSES}
    config = request.config(one.method, free)
    chosen = {name: value for name, value in one.settings.items() if name in free}
    combination = Combination(one.method, config.model.name, chosen, config, one.recipe)
    if missing_somewhere(data.federation) and config.method.is_personal("head.weight"):
        return  # a head of its own knows nothing of classes that its site never annotates, and no row there shows it
    if combination.alone or _shares(config, data):
        found.setdefault(config.toml(), combination)


def missing_somewhere(federation: Federation) -> bool:
    """Return whether some site annotates fewer classes than all sites together."""
    marks = federation.annotated_by_site()
    return marks is not None and bool((marks != marks.any(0)).any())


def searchable(kind: type[Labels]) -> bool:
    """Return whether any method declares that it fits these labels."""
    return any(True for _ in _methods(kind))


def prepared(request: AutoRequest, data: FederatedData) -> FederatedData:
    """Return the data with bins for the models that take them, learned once for all trials."""
    try:
        return with_bins(data, request.base.model.bins)
    except DataError:  # inputs that are not standardised have none
        return data


def _models(request: AutoRequest, data: FederatedData) -> list[str]:
    if "model.name" in request.fixed:
        return [request.base.model.name]
    shape, binned = tuple(data.federation.x.shape[1:]), len(data.scale.edges) > 0
    tried = (name for name in MODELS.get(len(shape), ("mlp",)) if binned or not models()[name].binned)
    return [name for name in tried if models()[name].fits(shape)] or ["mlp"]


def _methods(kind: type[Labels]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names of all methods that fit the labels, each with settings of its own to try, first those of all."""
    ways = [(name, own) for name, found in catalogue().items() for name, own in _named(name, found, kind)]
    yield from sorted(ways, key=lambda way: way[1] != _first(way[0]))


def _named(
    name: str, method: type[Algorithm] | type[Objective], kind: type[Labels]
) -> Iterator[tuple[str, dict[str, Any]]]:
    if not issubclass(method, Algorithm) or method.auto is None or method.made_for not in (None, kind):
        return
    algorithm = method()
    if algorithm.objective is not None:
        if algorithm.objective.accepts(kind):
            yield from ((name, own) for own in _grid("method", method.auto))
        return
    for loss, objective in objectives().items():
        if objective.auto is not None and objective.accepts(kind):
            for own, of_loss in product(_grid("method", method.auto), _grid("objective", objective.auto)):
                yield f"{name}+{loss}", own | of_loss


def _grid(section: str, tried: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in product(*tried.values()):
        yield {f"{section}.{key}": value for key, value in zip(tried, values, strict=True)}


def _first(name: str) -> dict[str, Any]:
    """Return the settings of a method that are tried first."""
    method, _, loss = name.partition("+")
    own = next(_grid("method", catalogue()[method].auto or {}))
    return own | (next(_grid("objective", catalogue()[loss].auto or {})) if loss else {})


def _recipes(name: str) -> tuple[dict[str, Any], ...]:
    method = catalogue()[name.partition("+")[0]]
    return OWN_STEPS if issubclass(method, Algorithm) and "optimizer" in method().fixed_recipe else RECIPES


def keeps_everything(method: Algorithm) -> bool:
    """Return whether no weight leaves its site, whatever it is called."""
    return method.is_personal("rep.") and method.is_personal("head.")


def _shares(config: Config, data: FederatedData) -> bool:
    """Return whether anything of the model is shared: a model that is all head may have nothing to share."""
    network = config.method.build(network_for(config, data))
    return any(not config.method.is_personal(name) for name, _ in network.named_parameters())
