"""One experiment from settings to results: data, network, engine, run folder."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from imperfed.core.errors import DiskFullError, DivergedError, ImperfedError, UsageError
from imperfed.core.federation import TO_TRUST
from imperfed.core.lazy import LazyRows
from imperfed.data.bins import with_bins
from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out, share_at_sites
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.no_tests import NoTests
from imperfed.evaluation.temperature import Temperature
from imperfed.evaluation.time_to_target import TargetReached, time_taken
from imperfed.experiments import shared_gpu
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.ranks import backend_of
from imperfed.experiments.run_data import anywhere, as_trained, falsifiers, load_data
from imperfed.experiments.run_parts import choose_objective, make_evaluator, network_for, refuse_misfit_data
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.models.own import weights_of
from imperfed.report import write_report
from imperfed.results.confidence import fit_confidence
from imperfed.results.folder import Record, RunFolder
from imperfed.results.metrics import log_lines, metrics
from imperfed.results.private_runs import privacy_of
from imperfed.results.repaired_labels import write_repair
from imperfed.results.summary import Summary
from imperfed.results.tracking import Tracker, tracker_class, tracking
from imperfed.results.write import RunOutcome, finish_simulation, write_summary


class Experiment:
    """Everything a run needs, checked before anything is written."""

    keeps_inputs: ClassVar[bool] = False
    """Whether the inputs of all sites are needed after training; otherwise they go to the ranks, if there are any."""

    def __init__(
        self,
        config: Config,
        data: FederatedData | None = None,
        make_backend: MakeBackend | None = None,
        tests: bool = True,
    ) -> None:
        """Prepare a run; `data`: where they are loaded already; `make_backend`: where not this machine computes.

        `tests`: whether its models may be measured on test rows.
        """
        self.config = config
        self.hardware = Hardware.of(config.run)
        self.hardware.prepare()
        if config.run.track != "none":
            tracker_class(config.run.track)
        self.at_sites, self.repair_result = as_trained(config, data or load_data(config))
        held_out = hold_out(self.at_sites, share_at_sites(config.split), config.run.data_seed)
        self.data = with_bins(held_out, config.model.wanted_bins)
        if config.method.needs_server_rows and self.data.federation.trusted is None:
            raise UsageError(f"{config.run.method} needs labelled rows at the server: {TO_TRUST}")
        self.objective = choose_objective(config, self.data)
        federation = self.data.federation
        refuse_misfit_data(config.method, self.objective, federation)
        self.evaluator = make_evaluator(config, self.data)
        network = network_for(config, self.data)
        self.initial = weights_of(network) if config.model.handed_over is not None else None
        network.halved = self.hardware.precision == "bf16"
        self.engine = Engine(
            config.method,
            self.objective,
            network,
            federation,
            self.evaluator if tests else NoTests(),
            config.local,
            config.rounds,
            config.run.seed,
            config.defence,
            make_backend or backend_of(self.hardware, config if isinstance(federation.x, LazyRows) else None),
            self.hardware.device,
            falsifiers(config, len(federation.sites)),
            config.privacy,
        )
        taken = len(self.engine.population.federation.x) < len(federation.x)  # by the ranks
        if taken and not self.keeps_inputs:
            self.data = replace(self.data, federation=federation.without_inputs())
            self.at_sites = replace(self.at_sites, federation=self.at_sites.federation.without_inputs())

    def go(self, folder: RunFolder, watch: Watch) -> Summary:
        """Train to the end, write the results and return the summary."""
        with folder.resumable(), tracking(self.config.run.track, folder, self.config.flat()) as tracker:
            return self._go(folder, watch, tracker)

    def _go(self, folder: RunFolder, watch: Watch, tracker: Tracker | None) -> Summary:
        engine, trained = self.engine, self.engine.population.federation.sites
        begun = lap = time.perf_counter()
        watch.begin(self.config, self.data, engine.state.round)
        repaired = self.repair_result.notes if self.repair_result is not None and engine.state.round == 0 else ()
        for note in (*shared_gpu.notes(), *repaired):
            folder.log(note)

        def on_round(report: RoundReport) -> None:
            nonlocal lap
            lap, before = time.perf_counter(), lap
            timed = [time_taken(report)] if self.config.rounds.target else []
            folder.append(self.metrics_of(report) + timed)
            for line in log_lines(report, trained):
                folder.log(line)
            if tracker is not None:
                tracker.catch_up()
            watch.round(report, lap - before)

        try:
            ended = engine.run(on_round, lambda: watch.stop() or watch.end(), folder.checkpoint)
        except ImperfedError as error:
            with suppress(DiskFullError):  # which may be the failure itself
                folder.log(f"failed: {error}")
            if isinstance(error, RankLostError):
                raise type(error)(f"{error}; {continuing(folder)}") from error
            if isinstance(error, DivergedError):
                write_report(folder)
            raise
        if not ended and watch.end():
            self._shorten(folder)
        elif not ended:
            folder.log(f"interrupted after round {engine.state.round}; checkpoint written")
            raise Interrupted(f"interrupted; continue with: imperfed resume {folder.path}")
        engine.return_to_best()
        summary = self._write_results(folder, round(time.perf_counter() - begun, 3))
        if summary.validation is not None:
            folder.log(summary.validation.sentence(summary.rounds))
        for sentence in summary.privacy.sentences() if summary.privacy is not None else ():
            folder.log(sentence)
        write_report(folder)
        return summary

    def metrics_of(self, report: RoundReport) -> list[Record]:
        """Return what is recorded of a round."""
        federation, trained = self.data.federation, self.engine.population.federation.sites
        name = federation.labels.validity_name()
        return metrics(report, trained, federation.sites, self.evaluator.one_test, name)

    def _shorten(self, folder: RunFolder) -> None:
        """Make the rounds so far all rounds of the run, so that its results are complete."""
        done = self.engine.state.round
        folder.log(f"ended after round {done} of {self.config.rounds.rounds} at the caller's request")
        self.config = replace(self.config, rounds=replace(self.config.rounds, rounds=done))
        folder.write("config.toml", anywhere(self.config).toml())

    def temperature(self) -> Temperature:
        """Return what the logits of the models are divided by, so that they are as sure as they are right."""
        return fit_confidence(self.engine)

    def finished(self, folder: RunFolder, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome of a run that has ended, whose labels and models are written."""
        return outcome

    def close(self) -> None:
        """Shut down the workers."""
        self.engine.close()

    def _write_results(self, folder: RunFolder, seconds: float) -> Summary:
        """Write labels, models and the summary."""
        target = repair = None
        if self.config.rounds.target:
            target = TargetReached.find(folder.records(), self.evaluator.metric, self.config.rounds.target)
        if self.repair_result is not None and self.config.repair is not None:
            evaluator = make_evaluator(self.config, self.at_sites)  # a repair is about all rows
            federation = self.at_sites.federation
            repair = write_repair(folder, self.config.repair.name, self.repair_result, federation, evaluator)
        temperature = self.temperature()
        outcome = finish_simulation(folder, self.engine, self.data, self.evaluator, self.config.run, temperature)
        privacy = privacy_of(self.engine, self.config, self.data)
        outcome = replace(outcome, seconds=seconds, target=target, repair=repair, privacy=privacy)
        outcome = self.finished(folder, outcome)
        return write_summary(folder, self.data, self.evaluator, outcome)


def continuing(folder: RunFolder) -> str:
    """Return how a run goes on that other ranks have ended, in words."""
    where = "its last checkpoint" if folder.checkpoint.exists() else "its beginning: there is no checkpoint yet"
    return f"continue from {where}, in one process or on any number of ranks: imperfed resume {folder.path}"
