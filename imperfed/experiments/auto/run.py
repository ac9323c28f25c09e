"""A run of `auto`: the search on rows held out, then an ordinary run of what was chosen, on all rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels.counts import one_class_each
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE
from imperfed.data.held_out import hold_out
from imperfed.data.partitions.base import RowPartition
from imperfed.engine.backends.task_pool import cores, make_pool
from imperfed.experiments import starting
from imperfed.experiments.auto.alone_search import AloneContext, fit_sites, own_model
from imperfed.experiments.auto.combinations import Combination, prepared
from imperfed.experiments.auto.label_check import check_labels
from imperfed.experiments.auto.outcome import AutoExperiment, record_of
from imperfed.experiments.auto.request import HELD_OUT, AutoRequest
from imperfed.experiments.auto.search import Search, SearchOutcome
from imperfed.experiments.auto.search_sites import SitesHere
from imperfed.experiments.config import AUTO, Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.public_inputs import about_public, without_unused_public
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import anywhere, load_data, own_declaration
from imperfed.experiments.starting import InMemory, tracked_by
from imperfed.experiments.training_rows import refuse_other_rows, split_of
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.report.words import many
from imperfed.results.auto_summary import AutoSummary
from imperfed.results.damaged_files import parse_file
from imperfed.results.data_facts import DataFacts
from imperfed.results.environment import environment
from imperfed.results.folder import REQUEST, TRIALS, RunFolder
from imperfed.results.mixture import Mixture, save_mixture
from imperfed.results.summary import Summary
from imperfed.results.tracking import tracker_class


def start(
    request: AutoRequest,
    out: Path,
    watch: Watch,
    data: FederatedData | None = None,
    in_memory: InMemory | None = None,
) -> tuple[RunFolder, Summary]:
    """Search and run in a new folder below `out`; `data`: where they are loaded already."""
    base = request.base
    refuse_unsearchable(base)
    if base.run.track != "none":  # a missing tool is said before the search, not after it
        tracker_class(base.run.track)
    if data is None:
        watch.prepare(base)
    declaration = in_memory.declaration if in_memory else own_declaration(base)
    data = data or load_data(base)
    refuse_one_class_each(data.federation)
    folder = RunFolder.create(out, anywhere(base), Hardware.of(base.run).described(), AUTO)
    with folder.resumable():
        folder.write(REQUEST, json.dumps(request.plain(), indent=2))
        if declaration is not None:
            folder.write(FILE, declaration.toml())
        folder.save_split(split_of(data.federation), in_memory.index if in_memory else None)
        any_method = replace(base, run=replace(base.run, method=AUTO))
        folder.log(about_public(any_method, DataFacts.of(data.facts)))
    return folder, search_and_run(folder, request, watch, data)


def start_any(
    file: Mapping[str, Any] | None,
    words: Mapping[str, Any],
    out: Path,
    watch: Watch,
    load: Callable[[Config], tuple[FederatedData | None, InMemory | None]] = lambda config: (None, None),
    objects: Objects = NO_OBJECTS,
) -> tuple[RunFolder, Summary]:
    """Run the method that the settings name, or search if that is `auto`.

    `load`: where data are loaded already; `objects`: parts that were handed over from Python.
    """
    request = AutoRequest.of(file, words, objects)
    if request is not None:
        request = request.without_public()
        return start(request, out, watch, *load(request.base))
    (config,) = without_unused_public([settings_of(file, words, objects)])
    return starting.start(config, out, watch, *load(config))


def settings_of(file: Mapping[str, Any] | None, words: Mapping[str, Any], objects: Objects = NO_OBJECTS) -> Config:
    """Return the settings of a run that names its method."""
    if "budget" in words or "auto.budget" in words:
        raise UsageError("budget bounds the search of auto, but this run names its method; leave it out")
    return resolve(file, words, objects)


def resume(
    folder: RunFolder,
    watch: Watch,
    data: FederatedData | None = None,
    objects: Objects = NO_OBJECTS,
    track: str = "",
) -> Summary:
    """Continue any run; one of `auto` from its search, if that has not ended, otherwise from its last checkpoint.

    `objects` and `track`: as in `starting.resume`.
    """
    if not (folder.path / REQUEST).exists():
        return starting.resume(folder, watch, data, objects, track)
    config = tracked_by(folder, track, objects)
    if data is None:
        watch.prepare(config)
    if (folder.path / TRIALS).exists():
        return run_chosen(folder, watch, data or load_data(config), objects)
    request = read_request(folder, objects)
    assert request is not None
    if track:
        request = request.tracked_by(track)
        folder.write(REQUEST, json.dumps(request.plain(), indent=2))
    data = data or load_data(request.base)
    refuse_other_rows(folder, data.federation)
    return search_and_run(folder, request, watch, data)


def read_request(folder: RunFolder, objects: Objects = NO_OBJECTS) -> AutoRequest | None:
    """Return what `auto` was asked for in a run's folder; None if the run is of a method."""
    path = folder.path / REQUEST
    return AutoRequest.read(parse_file(path, json.loads, "start a new run"), objects) if path.exists() else None


def refuse_unsearchable(base: Config) -> None:
    """Refuse data whose sites cannot hold rows out, and privacy, of which every trial would spend a part."""
    if base.privacy is not None:
        raise UsageError(
            f"privacy={base.privacy.name}: every trial of auto sends updates, and epsilon counts those "
            "of one run only; name a method, such as imperfed run fedavg"
        )
    if not isinstance(base.split.partition, RowPartition):
        raise UsageError(
            f"auto chooses on rows that sites hold out, and with partition = {base.split.partition.name} no site does; "
            f"name a method made for it: imperfed run fedalc --data {base.run.data}"
        )


def refuse_one_class_each(federation: Federation) -> None:
    """Refuse sites that name one class each: on rows held out there, saying always the same is perfect."""
    labels, ranges = federation.labels, pairwise(federation.starts)
    if not labels.partial and one_class_each(labels.between(start, stop).counts() for start, stop in ranges):
        raise UsageError(
            f"auto chooses on rows that sites hold out, and each site of {federation.name} names one class, so that "
            "these rows tell no model from another; name a method made for it (`imperfed inspect` lists some)"
        )


def search_and_run(folder: RunFolder, request: AutoRequest, watch: Watch, data: FederatedData) -> Summary:
    """Search, keep what was found in the folder, and run it."""
    with folder.resumable():
        _search(folder, request, watch, data)
    return run_chosen(folder, watch, data, request.objects)


def _search(folder: RunFolder, request: AutoRequest, watch: Watch, data: FederatedData) -> None:
    """Search, and keep in the folder what was found."""
    watch.search("looking at the labels", 0.0)
    checked = check_labels(request, data)
    request, at_sites, base = checked.request, checked.at_sites, checked.request.base
    share = base.split.validation or HELD_OUT
    held = at_sites if at_sites.federation.validation else hold_out(at_sites, share, base.run.data_seed)
    held = prepared(request, held)
    watch.begin(replace(base, run=replace(base.run, method=AUTO)), held, 0)

    def sites(combinations: Sequence[Combination]) -> SitesHere:
        return SitesHere(held, combinations, base)

    found = search(folder, Search(request, held, sites, watch.search, watch.stop))
    record = record_of(found, request, held, share, checked.check)
    kinds = [own_model(site.alone, site.settings) for site in record.sites if site.alone]
    if kinds:
        context = AloneContext(at_sites, base.run.seed)
        with closing(make_pool(context, min(base.rounds.workers or cores(), len(kinds)))) as pool:
            models = fit_sites(pool, kinds)
        for site, model in zip(record.sites, models, strict=True):
            temperatures = record.temperature, record.mixture_temperature
            save_mixture(folder, site.site, Mixture(model, site.weight, *temperatures))
    keep_choice(folder, record, found.combination.config)


def search(folder: RunFolder, searching: Search) -> SearchOutcome:
    """Search; if that is interrupted, say how to begin again."""
    try:
        return searching.go()
    except Interrupted:
        folder.log("interrupted in the search")
        raise Interrupted(f"interrupted in the search; begin it again with: imperfed resume {folder.path}") from None


def keep_choice(folder: RunFolder, record: AutoSummary, chosen: Config) -> None:
    """Write what a search found, and the settings of the run that follows: on all rows, up to the best round."""
    config = replace(
        chosen,
        split=replace(chosen.split, validation=0.0),
        rounds=replace(chosen.rounds, rounds=record.rounds, patience=0),
    )
    folder.write("config.toml", anywhere(config).toml())
    folder.write("env.json", json.dumps(folder.environment() | environment(config), indent=2))  # now with its plug-ins
    folder.write(TRIALS, record.to_json())
    for line in search_lines(record):
        folder.log(line)


def read_choice(folder: RunFolder) -> AutoSummary:
    """Return what a search found."""
    return parse_file(folder.path / TRIALS, AutoSummary.from_json, "delete it")


def search_lines(record: AutoSummary) -> list[str]:
    """Return the search in sentences, for the log."""
    lines = [
        f"auto: {len(record.trials)} of {record.combinations} combinations tried, budget {record.budget:g} min; "
        f"chosen: {record.method} with model {record.model}, {many(record.rounds, 'round')}, "
        + ", ".join(f"{name} = {value}" for name, value in record.settings.items())
    ]
    check = record.label_check
    lines.append(f"auto: {check.sentence() or f'labels are as given: {check.words}'}")
    if record.alone_left_out:
        lines.append(f"auto: no models alone: {record.alone_left_out}")
    if record.cut_short:
        lines.append("auto: the search took far too long and was cut short; its choice may not be repeatable")
    return lines


def run_chosen(folder: RunFolder, watch: Watch, data: FederatedData, objects: Objects) -> Summary:
    """Run what the search has chosen on all rows, from its last checkpoint if there is one."""
    record, config = read_choice(folder), folder.config(objects)
    with folder.naming_missing_plugins(objects), closing(AutoExperiment(config, data, record)) as running:
        refuse_other_rows(folder, running.data.federation)
        if starting.go_back(running, folder):
            folder.log(f"resumed after round {running.engine.state.round}")
        return running.go(replace(folder, made_with=config), watch)
