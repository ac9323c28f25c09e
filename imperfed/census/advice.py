"""Methods that can learn from the labels found, taken from the catalogue; no method is named here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imperfed.algorithms import catalogue, reference
from imperfed.cli.catalogue import about
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Local
from imperfed.experiments.auto.combinations import keeps_everything, searchable
from imperfed.experiments.auto.request import PLAIN as PLAIN_AVERAGING
from imperfed.experiments.config import RunConfig
from imperfed.models import models
from imperfed.repairs import repairs

SMALL = 16
"""Pixels on a side up to which images need no convolutions."""
RATE: dict[str, str | float] = {"lr": 0.003}
ADAM: dict[str, str | float] = {"optimizer": "adamw", **RATE}
"""What convolutions need (methods with steps of their own, the rate only): by default they may learn nothing at all."""
PASSES = 2
"""Epochs per round over the rows of small sites."""
SPARSE, IMAGE = 2, 3
"""Dimensions of an input. Sparse rows cannot be compared as an audit does."""
SEARCH = "tries methods, models and settings on rows that sites hold out; says what federating brought"
COMPARED = "the same loss at every site alone, and what scikit-learn reaches there, beside it"
LOOK_FIRST = "look first, if labels may be wrong: trains no model and changes no file"
PLAIN = (str, int, float, list, tuple, set, dict)
"""The values that a call shows as they are; tables and arrays are shown by the name of the argument."""


@dataclass(frozen=True)
class Advice:
    """One entry of the catalogue that can learn from the labels found."""

    name: str
    part: str
    """algorithm, objective or repair"""
    made_for: bool
    """Whether it was made for this kind of labels, rather than learning from any kind."""
    needs: str
    """What it needs in addition; empty: nothing."""
    why: str
    searched: bool = False
    """Whether a search by `auto` tries it."""


def advise(kind: type[Labels]) -> tuple[Advice, ...]:
    """Return everything that can learn from this kind of labels: first what was made for it, then what `auto` tries."""
    methods = [advice for name, method in catalogue().items() if (advice := _suits(name, method, kind))]
    corrections = [Advice(name, "repair", True, "", about(r)) for name, r in repairs().items() if r.labels is kind]
    return (*sorted(methods, key=lambda a: (not a.made_for, a.part, not a.searched)), *corrections)


def _suits(name: str, method: type[Algorithm] | type[Objective], kind: type[Labels]) -> Advice | None:
    searched = method.auto is not None
    if issubclass(method, Objective):
        made_for = method.labels is kind
        return Advice(name, "objective", made_for, "", about(method), searched) if method.accepts(kind) else None
    algorithm = method()
    own = algorithm.objective
    if method.made_for not in (None, kind) or (own is not None and not own.accepts(kind)):
        return None
    needs = "with trusted rows at the server" if algorithm.needs_server_rows else ""
    needs = "a reference: all rows in one place" if method.pools_data else needs
    made_for = own is not None or method.made_for is kind
    return Advice(name, "algorithm", made_for, needs, about(method), searched)


def first(kind: type[Labels], searched: bool) -> str:
    """Return the method to begin with: the default if it fits, else one made for this kind, else plain averaging.

    `searched`: whether a search is advised as well. What it leaves out is for special cases, such as very many classes;
    and what is made for labels that name one class is for wrong ones, which an audit has yet to find.
    """
    fitting, usual = advise(kind), RunConfig().method
    made = [a for a in fitting if a.part == "algorithm" and a.made_for and not a.needs]
    able = [a.name for a in made if a.searched or not (searched or kind.settles)]
    plain = [PLAIN_AVERAGING] if _has_reference(kind) else [a.name for a in fitting if a.part == "objective"]
    return usual if usual in able else [*able, *plain][0]


@dataclass(frozen=True)
class Step:
    """Something to do next: a run, a comparison of several methods, or an audit; and why."""

    verb: str
    """The command, which is also the function in Python: run, compare or audit."""
    why: str
    methods: tuple[str, ...] = ()
    """None: `run` searches for one."""
    settings: Mapping[str, str | float] = field(default_factory=dict)

    def command(self, path: Path) -> str:
        """Return what to type in a shell; `path`: of the files."""
        place = shlex.quote(str(path))
        options = [
            f"--{key} {word}" if key == "model" else f"--set {key}={word}" for key, word in self.settings.items()
        ]
        data = [place] if self.verb == "audit" else ["--data", place]
        return " ".join(["imperfed", self.verb, *([",".join(self.methods)] if self.methods else []), *data, *options])

    def call(self, described: Mapping[str, Any]) -> str:
        """Return what to type in Python; `described`: the arguments that describe the data, which are in `data`."""
        method = [str([*self.methods]) if self.verb == "compare" else repr(self.methods[0])] if self.methods else []
        data = "data=data" if self.verb == "run" and not self.methods else "data"
        plain = {key: repr(value) if isinstance(value, PLAIN) else key for key, value in described.items()}
        plain |= {key: repr(value) for key, value in self.settings.items()}
        return f"imperfed.{self.verb}({', '.join([*method, data, *(f'{key}={text}' for key, text in plain.items())])})"


def first_steps(
    kind: type[Labels],
    shape: Sequence[int],
    rows: float,
    tested: bool,
    untestable: bool = False,
    one_class_each: bool = False,
) -> tuple[Step, ...]:
    """Return what to do next: a search, a single method, that method beside each site alone, a look at the labels.

    `rows`: the size of a typical site. `tested`: whether each site's own model can be tested. `untestable`: whether a
    site has too few rows to be trained and tested on. `one_class_each`: whether every site names a single class, so
    that rows held out there choose nothing, and nothing can be learned alone.
    """
    settings: dict[str, str | float] = {"test": 0} if untestable else {}
    searched = searchable(kind) and not one_class_each
    steps = [Step("run", SEARCH, (), settings)] if searched else []
    method = first(kind, searched)
    chosen = settings | _chosen(method, shape, rows)
    steps.append(Step("run", _why(method, kind), (method,), chosen))
    fair = "lr" not in chosen or not _has_own_steps(method)  # one rate does not suit steps of two kinds
    if tested and fair and not untestable and not one_class_each and (alone := at_each_site(method, kind)):
        steps.append(Step("compare", COMPARED, (method, alone), chosen))
    if len(shape) != SPARSE and any(repair.labels is kind and repair.reference for repair in repairs().values()):
        steps.append(Step("audit", LOOK_FIRST))
    return tuple(steps)


def _chosen(method: str, shape: Sequence[int], rows: float) -> dict[str, str | float]:
    """Return the settings that a single method should not be left without."""
    chosen: dict[str, str | float] = {}
    if len(shape) == SPARSE:
        chosen["model"] = "text"
    elif len(shape) == IMAGE and min(shape[1:]) > SMALL and models()["cnn"].fits(tuple(shape)):
        chosen |= {"model": "cnn"} | (RATE if _has_own_steps(method) else ADAM)
    if rows < Local().batch:  # the default number of steps would visit so few rows too often
        chosen["epochs"] = PASSES
    return chosen


def _why(method: str, kind: type[Labels]) -> str:
    made_for = any(advice.name == method and advice.made_for for advice in advise(kind))
    return f"a single method, {f'made for {kind.title}' if made_for else 'the simplest that learns from them'}"


def at_each_site(method: str, kind: type[Labels]) -> str:
    """Return the method that trains every site alone with the loss of this one; empty if there is none to name."""
    for name, known in catalogue().items():
        if issubclass(known, Algorithm) and not known.pools_data and keeps_everything(known()):
            own = _objective(method)
            return f"{name}+{own}" if own else name if _has_reference(kind) else ""
    return ""


def _has_own_steps(method: str) -> bool:
    """Return whether a method makes the steps of an optimizer of its own."""
    known = catalogue()[method]
    return issubclass(known, Algorithm) and "optimizer" in known().fixed_recipe


def _objective(method: str) -> str:
    """Return the name of the objective that a method brings; empty if it takes the reference."""
    known = catalogue()[method]
    if issubclass(known, Objective):
        return known.name
    own = known().objective
    return "" if own is None else own.name


def _has_reference(kind: type[Labels]) -> bool:
    """Return whether a method without its own objective has one for these labels."""
    try:
        return bool(reference(kind))
    except UsageError:
        return False
