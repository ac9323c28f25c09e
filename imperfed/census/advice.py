"""Methods that can learn from the labels at hand, taken from the catalogue; no method is named here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imperfed.algorithms import catalogue, reference
from imperfed.cli.catalogue import about
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Local
from imperfed.experiments.config import RunConfig
from imperfed.models import models
from imperfed.repairs import repairs

MODELS = {3: "cnn", 2: "text"}
"""The first model to try for images and for sparse inputs, by dimensions of an input; tables take the default."""
PASSES = 2
"""Epochs per round over the rows of small sites."""
PLAIN = (str, int, float, list, tuple, set, dict)
"""The values that a call shows as they are; tables and arrays are shown by the name of the argument."""


@dataclass(frozen=True)
class Advice:
    """One entry of the catalogue that can learn from the labels at hand."""

    name: str
    part: str
    """algorithm, objective or repair"""
    made_for: bool
    """Whether it was made for this kind of labels, rather than learning from any kind."""
    needs: str
    """What it needs in addition; empty: nothing."""
    why: str


def advise(kind: type[Labels]) -> tuple[Advice, ...]:
    """Return everything that can learn from this kind of labels, what was made for it first."""
    methods = [advice for name, method in catalogue().items() if (advice := _suits(name, method, kind))]
    corrections = [Advice(name, "repair", True, "", about(r)) for name, r in repairs().items() if r.labels is kind]
    return (*sorted(methods, key=lambda a: (not a.made_for, a.part)), *corrections)


def _suits(name: str, method: type[Algorithm] | type[Objective], kind: type[Labels]) -> Advice | None:
    if issubclass(method, Objective):
        return Advice(name, "objective", method.labels is kind, "", about(method)) if method.accepts(kind) else None
    algorithm = method()
    own = algorithm.objective
    if method.made_for not in (None, kind) or (own is not None and not own.accepts(kind)):
        return None
    needs = "with trusted rows at the server" if algorithm.needs_server_rows else ""
    needs = "a reference: all rows in one place" if method.pools_data else needs
    made_for = own is not None or method.made_for is kind
    return Advice(name, "algorithm", made_for, needs, about(method))


def first(kind: type[Labels]) -> str:
    """Return the method to begin with: the default if it fits, else one made for this kind, else plain averaging."""
    able = [a.name for a in advise(kind) if a.part == "algorithm" and a.made_for and not a.needs]
    usual = RunConfig().method
    return usual if usual in able else able[0] if able else reference(kind).name


@dataclass(frozen=True)
class Step:
    """A run, or a comparison of several methods, to begin with."""

    methods: tuple[str, ...]
    settings: Mapping[str, str | int]

    def command(self, path: Path) -> str:
        """Return what to type in a shell; `path`: of the files."""
        verb = "run" if len(self.methods) == 1 else "compare"
        words = [
            f"--{key} {value}" if key == "model" else f"--set {key}={value}" for key, value in self.settings.items()
        ]
        return " ".join([f"imperfed {verb} {','.join(self.methods)} --data {shlex.quote(str(path))}", *words])

    def call(self, described: Mapping[str, Any]) -> str:
        """Return what to type in Python; `described`: the arguments that describe the data, which are in `data`."""
        verb, methods = ("run", repr(self.methods[0])) if len(self.methods) == 1 else ("compare", str([*self.methods]))
        plain = {key: repr(value) if isinstance(value, PLAIN) else key for key, value in described.items()}
        plain |= {key: repr(value) for key, value in self.settings.items()}
        return f"imperfed.{verb}({', '.join([methods, 'data', *(f'{key}={text}' for key, text in plain.items())])})"


def first_steps(kind: type[Labels], shape: Sequence[int], rows: float, measured: bool) -> tuple[Step, ...]:
    """Return what to do next: a first run and, if models can be `measured`, a comparison with training alone.

    `rows`: the size of a typical site.
    """
    model = MODELS.get(len(shape), "")
    chosen: dict[str, str | int] = {"model": model} if model and models()[model].fits(tuple(shape)) else {}
    if rows < Local().batch:  # the default number of steps would visit so few rows too often
        chosen["epochs"] = PASSES
    method = first(kind)
    suited = [name for name, repair in repairs().items() if repair.labels is kind and repair.reference]
    alone = [n for n, m in catalogue().items() if issubclass(m, Algorithm) and not m.pools_data and m().is_personal("")]
    return (
        Step((method,), chosen),
        *(Step((method,), chosen | {"repair": name}) for name in suited),
        *(Step((method, name), chosen) for name in alone if measured and _learns(kind)),
    )


def _learns(kind: type[Labels]) -> bool:
    """Return whether a method without its own objective has one for these labels."""
    try:
        return bool(reference(kind))
    except UsageError:
        return False
