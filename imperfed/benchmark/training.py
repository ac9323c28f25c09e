"""One training of the benchmark: a trial, judged by rows held out, or a run, whose test rows are measured once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from imperfed import __version__
from imperfed.benchmark.records import RUN, BenchmarkRecord
from imperfed.core.errors import DataError, DivergedError, UsageError
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.parallel import DataCache, finished, run_of
from imperfed.experiments.plugins import plugins_in
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.run_data import load_data
from imperfed.experiments.stopping import stop_is_wanted
from imperfed.experiments.tuning import Tuning, judged
from imperfed.experiments.watch import Watch

_data = DataCache(load_data)
"""The data of the last run in this process."""


@dataclass(frozen=True)
class Training:
    """What is to be trained, and everything that it takes."""

    config: Config
    record: BenchmarkRecord
    """What is known of it before."""
    tuning: Tuning
    figures: tuple[str, ...]
    folder: Path
    """Where the runs of this dataset lie: one that was cut off goes on from its checkpoint."""


def carried_out(training: Training, watch: Callable[[], Watch]) -> BenchmarkRecord:
    """Train, and return the record; it says if the method does not fit the data, or diverged."""
    began, record, config = time.perf_counter(), training.record, training.config
    try:
        if record.trial == RUN:
            seconds, figures = _measured(training, watch())
            record = replace(record, figures=figures, seconds=seconds)
        else:
            score = judged(config, training.tuning)
            record = replace(record, score=score, seconds=round(time.perf_counter() - began, 3))
    except (DivergedError, DataError, UsageError) as error:
        record = replace(record, failed=str(error), diverged=isinstance(error, DivergedError))
    device = str(Hardware.of(config.run).described()["device"])
    return replace(record, version=version_of(config), device=device)


def aside(training: Training) -> BenchmarkRecord:
    """Train in another process, which has one core to itself."""
    torch.set_num_threads(1)
    return carried_out(training, lambda: Watch(stop=stop_is_wanted))


def _measured(training: Training, watch: Watch) -> tuple[float, dict[str, float | None]]:
    """Return the seconds of a run and its figures."""
    config, folder = training.config, training.folder
    summary = finished(config, folder, watch, _data.data(config))
    run = run_of(config, folder)
    assert run is not None  # it has ended
    found = {name: measure(name).of(summary, run) for name in training.figures}
    return summary.seconds or 0.0, {name: None if value is None else round(value, 6) for name, value in found.items()}


def version_of(config: Config) -> str:
    """Return the version of imperfed, and of every distribution whose plug-ins take part."""
    plugins = {f"{one['distribution']} {one['version']}" for one in plugins_in(config) if "distribution" in one}
    return ", ".join([f"imperfed {__version__}", *sorted(plugins)])
