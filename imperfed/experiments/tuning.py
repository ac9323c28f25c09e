"""The same small search for every method of a comparison: its learning rate and one setting of its own.

Every method gets equally many trials, each of as many rounds as the comparison; the first is the method as it is
written. A trial is judged after its last round by the rows that the sites hold out from training (`split.validation`),
or, with one label per site, by the examples that are set aside. Test rows are not looked at, and the settings chosen
with one seed are used with all.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError, DivergedError
from imperfed.core.threads import one_thread
from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.evaluator import VALIDATION
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.parallel import ParallelRuns, paying
from imperfed.experiments.stopping import stop_is_wanted
from imperfed.experiments.watch import Interrupted, Watch

FACTORS = (1.0, 3.0, 1 / 3, 10.0, 0.1, 30.0, 1 / 30, 5.0, 0.2)
"""What the learning rate is multiplied by, in the order in which it is tried."""


@dataclass(frozen=True)
class Tuning:
    """How much every method of a comparison is tuned."""

    trials: int = len(FACTORS)
    held_out: float = 0.2
    """The share of its rows that each site holds out in a trial, if the settings do not say."""
    seed: int = 0
    """The seed of all trials, whatever the seeds of the comparison: another call chooses the same."""


def attempts(config: Config, tuning: Tuning) -> list[dict[str, Any]]:
    """Return the settings of all trials of a method: the learning rates for each value of its own setting."""
    flat, rate = config.flat(), config.method.rate_setting
    name, values = own_setting(config)
    found = []
    for number, value in enumerate(values):
        share, left = divmod(tuning.trials, len(values))
        for factor in FACTORS[: share + (number < left)]:
            base = float(flat[rate])  # type: ignore[arg-type]
            found.append({rate: float(f"{base * factor:.3g}")} | ({name: value} if name else {}))
    return found


def own_setting(config: Config) -> tuple[str, tuple[Any, ...]]:
    """Return the setting that is tried beside the learning rate and its values, first the one it has; "" for none.

    The method's own comes before that of its objective.
    """
    for section, part in (("method", config.method), ("objective", config.method.objective)):
        for key, values in (part.tuned if part is not None else {}).items():
            has = getattr(part, key)
            return f"{section}.{key}", (has, *(value for value in values if value != has))
    return "", (None,)


def best_of(scores: Iterable[tuple[float | None, dict[str, Any]]]) -> dict[str, Any]:
    """Return the settings of the best trial; of equal ones, and if all fail, the first."""
    return max(scores, key=lambda one: -math.inf if one[0] is None else one[0])[1]


def words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as words after a method's name."""
    return [f"{key}={value}" for key, value in settings.items()]


@dataclass(frozen=True)
class Trial:
    """One trial of a row."""

    row: str
    number: int
    settings: Mapping[str, Any]
    """Those that are tried, beside what the row says."""
    key: str
    """What distinguishes it in the file: what the row says, the share held out, and the settings."""
    config: Config

    def told(self, tuning: Tuning) -> str:
        """Return a line that says which one it is."""
        return f"tuning {self.row}, trial {self.number + 1} of {tuning.trials}"


@dataclass(frozen=True)
class Choices:
    """The settings chosen for every row of a comparison, from the scores of all trials, which a file keeps."""

    path: Path
    tuning: Tuning

    def trials(self, methods: Mapping[str, str], make: Callable[[str, int], Config]) -> Iterator[Trial]:
        """Yield all trials of all rows, by their names."""
        for row, method in methods.items():
            config = make(method, self.tuning.seed)
            for number, own in enumerate(attempts(config, self.tuning)):
                key = f"{config.digest()} {self.tuning.held_out:g} {json.dumps(own)}"
                yield Trial(row, number, own, key, make(" ".join([method, *words(own)]), self.tuning.seed))

    def missing(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that are not in the file; of equal ones, as two rows may have them, one."""
        known = self._read()
        return list({trial.key: trial for trial in trials if trial.key not in known}.values())

    def keep(self, trial: Trial, score: float | None) -> None:
        """Write the score of a trial into the file."""
        text = json.dumps(self._read() | {trial.key: score}, indent=1)
        write_whole(self.path, lambda partly: partly.write_text(text, encoding="utf-8"))

    def best(self, trials: Iterable[Trial]) -> dict[str, dict[str, Any]]:
        """Return the best settings of every row, all of whose trials are in the file."""
        known, scores = self._read(), defaultdict[str, list[tuple[float | None, dict[str, Any]]]](list)
        for trial in trials:
            scores[trial.row].append((known[trial.key], dict(trial.settings)))
        return {row: best_of(found) for row, found in scores.items()}

    def _read(self) -> dict[str, float | None]:
        """Return the scores of the trials in the file."""
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8"))) if self.path.exists() else {}
        except ValueError as error:
            raise DataError(f"{self.path}: cut short or damaged ({error}); delete it to tune again") from error


def scored(
    trials: Sequence[Trial], tuning: Tuning, processes: ParallelRuns, folder: Path, watch: Watch
) -> Iterator[tuple[int, float | None]]:
    """Yield the place of each trial and its score, as they end; side by side in as many processes as there are.

    `folder`: where the runs that follow will be, with which ranks begin.
    """
    most = (processes.jobs or paying(trials[0].config)) if trials else 0
    if most > 1:
        # No more processes start than have something to do; runs that follow may have use for all of them.
        calls = [(one, tuning) for one in trials]
        yield from processes.as_they_end(most, aside, calls, trials[0].config, folder, watch.stop)
        return
    for place, trial in enumerate(trials):
        if watch.stop():
            raise Interrupted(f"interrupted while tuning {trial.row}")
        watch.search(trial.told(tuning), place / len(trials))
        yield place, judged(trial.config, tuning)


def aside(trial: Trial, tuning: Tuning) -> float | None:
    """Return the score of a trial in another process, which prints when it begins and has one core to itself."""
    if stop_is_wanted():
        raise Interrupted(f"interrupted while tuning {trial.row}")
    print(f"{trial.told(tuning)}\n", end="", flush=True)  # in one piece: other processes write at the same moment
    with one_thread():
        return judged(trial.config, tuning)


def judged(config: Config, tuning: Tuning) -> float | None:
    """Return the score of a trial after its last round; None if it diverges or its rows held out say nothing."""
    share = config.split.validation or tuning.held_out
    rounds = replace(config.rounds, evaluate_every=config.rounds.rounds, keep_best=False, target=0.0, workers=1)
    trial = replace(config, split=replace(config.split, validation=share), rounds=rounds)
    reports: list[RoundReport] = []
    try:
        with closing(Experiment(trial)) as experiment:
            experiment.engine.run(reports.append, lambda: False, None)
            return next(_scores(reports[-1], experiment.evaluator.metric), None)
    except DivergedError:
        return None


def _scores(report: RoundReport, metric: str) -> Iterator[float]:
    """Yield the score on rows that the sites hold out, or on examples that are set aside."""
    if report.validation.weight > 0:
        yield report.validation.score
    elif (found := report.common.get(f"{VALIDATION}{metric}")) is not None:
        yield found[0]
