"""One experiment from settings to results: data, network, engine, run folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed.algorithms import objectives, reference
from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Adversaries, RepairResult, UpdateAttack, apply_attack, draw_adversaries
from imperfed.core.errors import DataError, DiskFullError, DivergedError, ImperfedError, UsageError
from imperfed.core.federation import TO_TRUST, Federation
from imperfed.core.labels import Annotated, Exact, Labels
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.core.threads import one_thread
from imperfed.data.bins import with_bins
from imperfed.data.corruption.annotations.full import FullAnnotation
from imperfed.data.federate import FederatedData, federate
from imperfed.data.files.declaration import FILE, Declaration, is_federation, parse, read_declaration
from imperfed.data.files.memory import IN_MEMORY
from imperfed.data.files.reading import read_sites
from imperfed.data.held_out import hold_out, share_at_sites
from imperfed.data.labelling import LabelConfig
from imperfed.data.own_files import federate_files
from imperfed.data.row_names import listed_or_kept
from imperfed.data.sources import load, sources
from imperfed.data.sparse import width
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.engine.conversation import repair_labels
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.schedule import RoundReport
from imperfed.engine.seeds import SERVER, generator, seed_of, seeded
from imperfed.evaluation.evaluator import Evaluator, Scores
from imperfed.evaluation.no_tests import NoTests
from imperfed.evaluation.temperature import Temperature
from imperfed.evaluation.time_to_target import TargetReached, time_taken
from imperfed.experiments import shared_gpu
from imperfed.experiments.config import Config, RunConfig, options
from imperfed.experiments.device import Hardware
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.public_inputs import about_public
from imperfed.experiments.ranks import backend_of
from imperfed.experiments.values import typed
from imperfed.models import build
from imperfed.models.own import weights_of
from imperfed.report import write_report
from imperfed.results.confidence import fit_confidence
from imperfed.results.folder import AT_THE_SITES, Record, RunFolder
from imperfed.results.metrics import log_lines, metrics
from imperfed.results.mixture import Predictor, read_mixture
from imperfed.results.private_runs import privacy_of
from imperfed.results.repair import write_repair
from imperfed.results.summary import DataFacts, Summary
from imperfed.results.tracking import Tracker, tracker_class, tracking
from imperfed.results.write import RunOutcome, finish_simulation, write_summary


@dataclass
class Watch:
    """Hooks of a run: called before data are prepared, at its beginning, after every round, and to ask for a stop.

    `search` is told what the search before a run is doing, and the share of its work that is done.
    `stop` interrupts a run, which can be resumed; `end` makes the round its last one, with results.
    """

    prepare: Callable[[Config], None] = lambda config: None
    begin: Callable[[Config, FederatedData, int], None] = lambda config, data, round: None
    round: Callable[[RoundReport, float], None] = lambda report, seconds: None
    search: Callable[[str, float], None] = lambda doing, share: None
    stop: Callable[[], bool] = lambda: False
    end: Callable[[], bool] = lambda: False


class Interrupted(ImperfedError):
    """A run was asked to stop; the message says how to continue from its checkpoint."""

    exit_code = 130


class Experiment:
    """Everything a run needs, checked before anything is written."""

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
            make_backend or backend_of(self.hardware),
            self.hardware.device,
            falsifiers(config, len(federation.sites)),
            config.privacy,
        )
        if len(self.engine.population.federation.x) < len(federation.x):  # each rank has taken its rows
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


def is_own(data: str) -> bool:
    """Return whether the data are a federation of the user's own files; built-in names take precedence."""
    return data not in sources() and data != IN_MEMORY and is_federation(data)


def same_data(one: Config, other: Config) -> bool:
    """Return whether two runs have the same data before any attack or repair."""
    parts = ((c.run.data, c.run.data_seed, c.split, _labelling(c)) for c in (one, other))
    return next(parts) == next(parts)


def _labelling(config: Config) -> LabelConfig:
    labelling = config.labels
    if config.method.complete_labels:
        classes = labelling.classes or ",".join(labelling.annotates.named_classes())
        labelling = replace(labelling, annotates=FullAnnotation(), classes=classes)
    wanted = config.repair or config.method.objective  # a repair sees the labels first
    # The two kinds besides candidate sets that can be simulated; any other kind is refused by `choose_objective`.
    if labelling.kind == "auto" and wanted is not None and wanted.labels in (Exact, Annotated):
        return replace(labelling, kind=wanted.labels.kind)
    return labelling


def load_data(config: Config) -> FederatedData:
    """Return the data of a run, split into sites, before any attack or repair."""
    if config.run.data == IN_MEMORY:
        raise UsageError(
            "the rows of this run were handed over in memory and are not stored; hand them over again in Python: "
            "imperfed.resume(folder, data=...)"
        )
    if is_own(config.run.data):
        declared = declaration_of(config)
        return federate_files(read_sites(declared).check(), config.split, config.labels, config.run.data_seed)
    return federate(load(config.run.data), config.split, _labelling(config), config.run.data_seed)


def as_trained(config: Config, data: FederatedData) -> tuple[FederatedData, RepairResult | None]:
    """Return the data after adversaries have rewritten their rows and sites have repaired their labels."""
    repair_result = None
    if data.federation.elsewhere:  # remote sites do this themselves
        return data, repair_result
    if config.attack is not None:
        attacked = apply_attack(config.attack, data.federation, drawing_adversaries(config))
        facts = {
            "adversaries": [data.federation.sites[k] for k in attacked.adversaries],
            "attack": list(attacked.notes),
        }
        data = replace(data, federation=attacked.federation, facts=data.facts | facts)
    if config.repair is not None:
        if type(data.federation.labels) is not config.repair.labels:
            raise UsageError(
                f"repair {config.repair.name} corrects {config.repair.labels.kind} labels, but {data.federation.name} "
                f"comes with {data.federation.labels.kind} labels here"
            )
        wanted, device = wanted_labels(config), Hardware.of(config.run).device
        federation, repair_result = repair_labels(config.repair, data.federation, wanted, device)
        data = replace(data, federation=federation.check())
    return data, repair_result


def drawing_adversaries(config: Config) -> torch.Generator:
    """Return the random numbers that say which sites attack: the same whenever they are asked for."""
    return generator(config.run.data_seed, 0, SERVER, "attack")


def falsifiers(config: Config, sites: int) -> Adversaries | None:
    """Return the sites whose updates are falsified, if the attack is one on updates."""
    if not isinstance(config.attack, UpdateAttack):
        return None
    return Adversaries(config.attack, draw_adversaries(config.attack, sites, drawing_adversaries(config)))


def held_by_sites(config: Config) -> FederatedData:
    """Return the data of a run as its sites hold them: after an attack, before any repair."""
    return as_trained(replace(config, repair=None), load_data(config))[0]


def wanted_labels(config: Config) -> type[Labels]:
    """Return the kind of labels that training asks a repair for: that of its objective, if it has one of its own."""
    return Exact if config.method.objective is None else config.method.objective.labels


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


@dataclass(frozen=True)
class InMemory:
    """What a run folder keeps about rows that were handed over in memory."""

    declaration: Declaration | None = None
    """What the columns mean, if the rows were tables or arrays."""
    index: Mapping[str, Mapping[str, Any]] | None = None
    """The caller's own name of each row, by site and id."""


def start(
    config: Config,
    out: Path,
    watch: Watch,
    data: FederatedData | None = None,
    in_memory: InMemory | None = None,
) -> tuple[RunFolder, Summary]:
    """Run an experiment in a new folder below `out`; `data`: where they are loaded already."""
    if data is None:
        watch.prepare(config)
    declaration = in_memory.declaration if in_memory else own_declaration(config)
    with closing(Experiment(config, data)) as experiment:
        folder = RunFolder.create(out, anywhere(config), experiment.hardware.described())
        with folder.resumable():
            if declaration is not None:  # predict reads new rows by it, whatever becomes of the original
                folder.write(FILE, declaration.toml())
            if experiment.initial is not None:
                folder.save_initial(experiment.initial)
            facts = DataFacts.of(experiment.data.facts)
            for note in (*facts.attack, about_public(config, facts)):
                folder.log(note)
            folder.save_split(split_of(experiment.data.federation), in_memory.index if in_memory else None)
        return folder, experiment.go(folder, watch)


def anywhere(config: Config) -> Config:
    """Return the settings with the absolute path of the user's own data, so that they hold in any directory."""
    if config.run.data in sources() or config.run.data == IN_MEMORY:
        return config
    path = os.path.abspath(Path(config.run.data).expanduser())
    return replace(config, run=replace(config.run, data=path))


def own_declaration(config: Config) -> Declaration | None:
    """Return the declaration of the user's own files; None for other data."""
    return declaration_of(config) if is_own(config.run.data) else None


def declaration_of(config: Config) -> Declaration:
    """Return the declaration of the user's own files, lazy if it says so or the settings do."""
    declaration = read_declaration(config.run.data)
    if not config.run.lazy or declaration.inputs.lazy:
        return declaration
    declared = replace(declaration, inputs=replace(declaration.inputs, lazy=True))
    return parse(declared.toml(), declared.file)  # which checks that lazy goes with the rest


def resume(
    folder: RunFolder,
    watch: Watch,
    data: FederatedData | None = None,
    objects: Objects = NO_OBJECTS,
    track: str = "",
) -> Summary:
    """Continue from a run's last checkpoint, or from its beginning if it has none yet.

    `track`: another tool for which to write the metrics than the run began with.
    """
    config = tracked_by(folder, track, objects)
    if data is None:
        watch.prepare(config)
    with folder.naming_missing_plugins(objects), closing(Experiment(config, data)) as experiment:
        refuse_other_rows(folder, experiment.data.federation)
        if folder.checkpoint.exists():
            if note := experiment.engine.state.restore(folder.checkpoint):
                folder.log(note)
        with folder.resumable():
            if not folder.split():  # the disk was full before it could be written
                folder.save_split(split_of(experiment.data.federation))
            folder.forget_from(experiment.engine.state.round)
            folder.log(f"resumed after round {experiment.engine.state.round}")
        return experiment.go(replace(folder, made_with=config), watch)


def tracked_by(folder: RunFolder, track: str, objects: Objects = NO_OBJECTS) -> Config:
    """Return the settings of a run in its folder, with another tool that tracks it from now on if one is named."""
    config = folder.config(objects)
    if track:
        config = replace(config, run=replace(config.run, track=typed(track, options(RunConfig)["track"], "run.track")))
        folder.write("config.toml", config.toml())
    return config


def split_of(federation: Federation) -> dict[str, Sequence[str]]:
    """Return the ids of the training rows by site."""
    ranges = zip(federation.sites, pairwise(federation.starts), strict=True)
    return {site: listed_or_kept(federation.ids[a:b]) for site, (a, b) in ranges}


def refuse_other_rows(folder: RunFolder, federation: Federation) -> None:
    """Refuse data that have changed since a run began: its training rows could now be among the test rows."""
    before, now = folder.split(), split_of(federation)
    changed = [site for site in before | now if before and before.get(site) != now.get(site)]
    if changed:
        first = changed[0]
        raise DataError(
            f"{federation.name}: the data have changed since {folder.path} was trained on them: other training rows at "
            f"{len(changed)} of {len(before | now)} sites ({first}: {len(before.get(first, ()))} rows then, "
            f"{len(now.get(first, ()))} now), so test rows may have been trained on. Restore the data as they were, "
            "or start a new run"
        )


def evaluate(folder: RunFolder) -> dict[str, Scores]:
    """Compute the figures of the models in a run's folder again, on the sites' test sets."""
    if folder.served:
        raise UsageError(f"{folder.path}: {AT_THE_SITES.format('report', folder.path.name)}, which has its figures")
    if folder.site:
        raise UsageError(
            f"{folder.path}: the folder of {folder.site} in a run with real sites, whose rows it keeps itself; "
            "its figures are in report.html and summary.json, and `imperfed predict` takes files"
        )
    config = folder.config()
    evaluator, federation, predictor = stored_models(folder, config, load_data(config))
    with one_thread():
        if not evaluator.sites:
            net = load_net(folder, config, federation.sites[0], *shape_of(federation))
            return {"common test set": evaluator.common(net)}
        return {site: evaluator.site(k, predictor(site)) for k, site in enumerate(federation.sites)}


def stored_models(
    folder: RunFolder, config: Config, data: FederatedData
) -> tuple[Evaluator, Federation, Callable[[str], Predictor]]:
    """Return what measures a run that has ended, its sites, and their models by name, from its folder.

    `data`: before any attack or repair.
    """
    data = hold_out(data, share_at_sites(config.split), config.run.data_seed)
    federation = data.federation
    refuse_other_rows(folder, federation)

    def predictor(site: str) -> Predictor:
        net, mixture = load_net(folder, config, site, *shape_of(federation)), read_mixture(folder, site)
        return net if mixture is None else mixture.beside(net, type(federation.labels))

    return make_evaluator(config, data), federation, predictor


def load_net(folder: RunFolder, config: Config, site: str, shape: tuple[int, ...], classes: int, features: int) -> Net:
    """Return the network with which a site predicts, from a run's folder, in evaluation mode."""
    with folder.naming_missing_plugins(), seeded(config.run.seed, 0, SERVER, "build"):
        network = config.method.build(make_network(config, shape, classes, features, folder.scale().edges)).eval()
    net = Net(network, Layout.of(network, config.method.is_personal))
    saved, fields = folder.load_model(site), net.layout.fields
    shapes, expected = ({name: [*t.shape] for name, t in tree.items()} for tree in (saved, fields))
    if misfits := [name for name in {**shapes, **expected} if shapes.get(name) != expected.get(name)]:
        raise DataError(
            f"{folder.path}: the model of {site} does not fit this run's settings: {misfits[0]} has the shape "
            f"{shapes.get(misfits[0])} there and {expected.get(misfits[0])} here"
        )
    return net.load(torch.cat([saved[name].reshape(-1) for name in fields]))
