"""One trial of a sweep: trained without a look at test rows, judged by the rows that the sites hold out."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from imperfed.core.errors import DivergedError
from imperfed.data.federate import FederatedData
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.parallel import DataCache, run_of
from imperfed.experiments.run_data import anywhere
from imperfed.experiments.starting import go_back
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.damaged_files import parse_file
from imperfed.results.folder import RunFolder

SCORE = "score.json"


@dataclass(frozen=True)
class SweepScore:
    """How a trial did on the rows held out."""

    score: float | None
    """None if it diverged, or if the rows held out say nothing."""
    round: int
    """The round with this score, counted from 1."""
    rounds: int
    seconds: float
    up: int
    """Bytes from all sites."""
    curve: tuple[tuple[int, float], ...]
    """Round and score, for every evaluated round."""
    failure: str = ""

    @classmethod
    def read(cls, path: Path) -> SweepScore:
        """Read the score of a trial that has ended."""
        values = parse_file(path, json.loads, "delete the trial's folder and resume")
        return cls(**{**values, "curve": tuple(map(tuple, values["curve"]))})


def score_of(config: Config, trials: Path) -> SweepScore | None:
    """Return the score of a trial below this folder; None if it has not ended."""
    run = run_of(config, trials)
    return None if run is None or not (run.path / SCORE).exists() else SweepScore.read(run.path / SCORE)


def trials_of(configs: Sequence[Config], trials: Path, watch: Callable[[], Watch]) -> list[SweepScore]:
    """Make the trials that have not ended, one after the other, and return the scores of all."""
    cache, found, watching = DataCache(), [], watch()
    for number, config in enumerate(configs):
        score = score_of(config, trials)
        if score is None:
            watching.search(f"trial {number + 1} of {len(configs)}, {distinct(config, configs)}", number / len(configs))
            score = carry_out(config, trials, watching, cache.data(config))
        found.append(score)
    return found


def distinct(config: Config, configs: Sequence[Config]) -> str:
    """Return the settings in which a trial differs from others."""
    flat = [other.flat() for other in configs]
    own = {key: value for key, value in config.flat().items() if any(other.get(key) != value for other in flat)}
    return " ".join([f"seed {config.run.seed}", *(f"{key}={value}" for key, value in own.items())])


def carry_out(config: Config, trials: Path, watch: Watch, data: FederatedData) -> SweepScore:
    """Train one trial, from its last checkpoint if it has one, and write its score."""
    with closing(Experiment(config, data, tests=False)) as experiment:
        folder = run_of(config, trials)
        if folder is None:
            folder = RunFolder.create(trials, anywhere(config), experiment.hardware.described())
        go_back(experiment, folder)
        began, failure = time.perf_counter(), ""
        try:
            if not experiment.engine.run(recording(experiment, folder), watch.stop, folder.checkpoint):
                raise Interrupted(f"interrupted in a trial, {folder.path}")
        except DivergedError as error:
            failure = str(error)
        score = judged(experiment, folder, time.perf_counter() - began, failure)
    text = json.dumps(asdict(score))
    folder.write(SCORE, text)
    shutil.rmtree(folder.checkpoint.parent, ignore_errors=True)
    return score


def recording(experiment: Experiment, folder: RunFolder) -> Callable[[RoundReport], None]:
    """Return what records every round of a trial in its folder."""
    return lambda report: folder.append(experiment.metrics_of(report))


def judged(experiment: Experiment, folder: RunFolder, seconds: float, failure: str) -> SweepScore:
    """Return the score of a trial that has ended: of its best round where that one would be kept, or of its last."""
    state, records = experiment.engine.state, list(folder.records())
    whole = [r for r in records if r["metric"].startswith("validation/") and r["site"] == "*"]
    curve = tuple((int(r["round"]), float(r["value"])) for r in whole)
    round, score = (state.round, curve[-1][1] if curve else -math.inf)
    if state.best is not None and experiment.config.rounds.keep_best:
        round, score = state.best.round, state.best.score
    up = int(sum(r["value"] for r in records if r["metric"] == "bytes/up"))
    known = score if math.isfinite(score) and not failure else None
    return SweepScore(known, round, state.round, round_seconds(seconds), up, curve, failure)


def round_seconds(seconds: float) -> float:
    """Return seconds as they are stored."""
    return float(f"{seconds:.3f}")
