"""Trials in memory: each continues where it stopped, in any process that is free."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.labels.validity import UNKNOWN, Validity
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.task_pool import portable
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.no_tests import NoTests
from imperfed.experiments.auto.combinations import Combination
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.run_parts import choose_objective, network_for

WINDOW = 5
"""A round counts with the mean score of so many rounds: of few rows, the best of many rounds is mostly a lucky one."""
PATIENCE = 8
"""Rounds of the last rung without a better score, after which a trial ends."""
NO_LIMIT = 1e12
"""Megabytes that all sites may remember in memory; a number, since the settings of a trial are sent to real sites."""
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class Progress:
    """How far a trial has come: everything that it takes to go on."""

    round: int = 0
    score: float = -np.inf
    best: int = 0
    """The round with that score."""
    waited: int = 0
    recent: list[float] = field(default_factory=list)
    """The scores of the last rounds."""
    sites: list[tuple[float, float]] = field(default_factory=list)
    """Score and weight of each site in the last round."""
    state: Arrays = field(default_factory=dict)
    best_state: Arrays = field(default_factory=dict)
    seconds: float = 0.0


def trial_config(config: Config, rounds: int, patience: int) -> Config:
    """Return the settings of a trial up to a round: judged after each one, in one process, with all memory in it."""
    how = replace(config.rounds, rounds=rounds, patience=patience, workers=1, evaluate_every=1, site_memory=NO_LIMIT)
    return replace(config, rounds=how)


def make_engine(config: Config, data: FederatedData, make_backend: MakeBackend | None = None) -> Engine:
    """Return the engine of a trial, which holds its rows out and computes in this process or on its GPU.

    `make_backend`: where the sites are elsewhere.
    """
    hardware = Hardware.of(config.run)
    hardware.prepare()
    network = network_for(config, data)
    network.halved = hardware.precision == "bf16"
    engine = Engine(
        config.method,
        choose_objective(config, data),
        network,
        data.federation,
        NoTests(),
        config.local,
        config.rounds,
        config.run.seed,
        config.defence,
        make_backend or hardware.local_backend,
        hardware.device,
    )
    assert engine.state.best is not None
    engine.state.best.window = WINDOW
    return engine


def restore(engine: Engine, progress: Progress) -> None:
    """Put an engine where a trial stopped."""
    best = engine.state.best
    assert best is not None
    if progress.round == 0:
        return
    for name, t in engine.state.flat().items():
        t.copy_(torch.from_numpy(progress.state[name]))
    engine.state.round = progress.round
    best.round, best.score, best.waited = progress.best, progress.score, progress.waited
    best.recent = list(progress.recent)
    best.sites = [Validity(*one) if one[1] > 0 else UNKNOWN for one in progress.sites]
    best.state = {name: torch.from_numpy(array) for name, array in progress.best_state.items()}


def advance(combination: Combination, data: FederatedData, progress: Progress, rounds: int, last: bool) -> Progress:
    """Train a trial up to this round, in the last rung until it gets no better."""
    config = trial_config(combination.config, rounds, PATIENCE if last else 0)
    return train(make_engine(config, data), progress)


def train(engine: Engine, progress: Progress) -> Progress:
    """Train a trial from where it stopped to the last round of its engine, which is then closed."""
    began = time.perf_counter()
    try:
        restore(engine, progress)
        engine.run(_ignore, lambda: False, None)
        best = engine.state.best
        assert best is not None
        return Progress(
            engine.state.round,
            best.score,
            best.round,
            best.waited,
            best.recent,
            [(one.score, one.weight) for one in best.sites],
            portable({name: t.cpu() for name, t in engine.state.flat().items()}),
            portable(best.state),
            progress.seconds + time.perf_counter() - began,
        )
    finally:
        engine.close()


def _ignore(report: RoundReport) -> None:
    pass


def held_out_logits(combination: Combination, data: FederatedData, progress: Progress) -> list[Tensor]:
    """Return the logits of every site's model of the best round for the rows that the site holds out."""
    held = data.federation.validation
    assert held is not None
    engine = make_engine(trial_config(combination.config, progress.round, 0), data)
    try:
        restore(engine, progress)
        engine.return_to_best()
        return [engine.population.held_out_logits(k) for k in range(len(held.sizes()))]
    finally:
        engine.close()


@dataclass(frozen=True)
class TrialRecord:
    """What is remembered of a trial."""

    number: int
    method: str
    model: str
    settings: Mapping[str, Any]
    rounds: int
    best_round: int
    score: float | None
    """None: it failed."""
    failure: str = ""


def records(
    combinations: Sequence[Combination],
    done: Mapping[int, Progress],
    failed: Mapping[int, str],
    scores: Mapping[int, float],
) -> Iterator[TrialRecord]:
    """Yield what is remembered of every trial, in the order of the list; `scores`: instead of the trials' own."""
    for number in sorted({*done, *failed}):
        one, progress = combinations[number], done.get(number, Progress())
        score = scores.get(number, progress.score)
        yield TrialRecord(
            number,
            one.method,
            one.model,
            dict(one.settings),
            progress.round,
            progress.best or progress.round,
            score if np.isfinite(score) else None,
            failed.get(number, ""),
        )
