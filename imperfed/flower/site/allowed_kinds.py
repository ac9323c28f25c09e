"""Which kinds of messages a site answers in a run, by what was agreed about it; a kind without an entry is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping

from imperfed.core.mechanism import SumMechanism
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.flower.messages.payload import REPAIR, Payload
from imperfed.repairs.posterior import PosteriorRepair

Condition = Callable[[Config, bool], str]
"""Returns why a kind of message is refused, from the settings agreed and whether a search was; empty if it is not."""
OF_REPAIR = ", repair"
"""Added to the kind of a message that is an exchange of a repair."""


def always(config: Config, search: bool) -> str:
    """Allow it in every run."""
    return ""


def in_a_search(config: Config, search: bool) -> str:
    """Allow it in a search by auto."""
    return "" if search else "this site agreed to a run of one method, not to a search"


def with_bins(config: Config, search: bool) -> str:
    """Allow it where a model has bins, or may have them."""
    return "" if search or config.model.wanted_bins else f"the model agreed to, {config.model.name}, has no bins"


def with_a_sum(config: Config, search: bool) -> str:
    """Allow it where updates are summed in secret."""
    return "" if isinstance(config.privacy, SumMechanism) and not search else "this site agreed to no secret sum"


def with_a_repair(config: Config, search: bool) -> str:
    """Allow it where labels are repaired before training, or audited."""
    return "" if config.repair is not None and not search else "this site agreed to no repair"


def in_an_audit(config: Config, search: bool) -> str:
    """Allow it where labels are judged."""
    return "" if isinstance(config.repair, PosteriorRepair) and not search else "this site agreed to no audit"


CONDITIONS: Mapping[str, Condition] = {
    "query.hello": always,
    "query.ready": always,
    "query.answer": always,
    "train": always,
    "evaluate": always,
    "query.leave": always,
    "query.count": with_bins,
    "query.unite": with_a_sum,
    "query.answer" + OF_REPAIR: with_a_repair,
    "query.audit": in_an_audit,
    "query.apply": in_a_search,
    "query.agree": in_a_search,
    "query.calibrate": in_a_search,
    "query.alone": in_a_search,
    "query.mix": in_a_search,
    "query.settle": in_a_search,
    "query.keep": in_a_search,
    "query.judge": in_a_search,
}


def why_not(kind: str, payload: Payload, settings: str, search: bool) -> str:
    """Return why a message is refused in a run with these settings; empty if it is not."""
    name = kind + (OF_REPAIR if payload.words.get("round") == REPAIR else "")
    if name not in CONDITIONS:
        return f"{name}: no agreement covers such a message"
    why = CONDITIONS[name](resolve(tomllib.loads(settings)), search)
    return f"{name}: {why}" if why else ""
