"""Start a run in a new folder, or continue one from its last checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE, Declaration
from imperfed.experiments.config import Config, RunConfig
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.public_inputs import about_public
from imperfed.experiments.run_data import anywhere, own_declaration
from imperfed.experiments.setting_sections import options
from imperfed.experiments.training_rows import refuse_other_rows, split_of
from imperfed.experiments.values import typed
from imperfed.experiments.watch import Watch
from imperfed.results.data_facts import DataFacts
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary


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
        with folder.resumable():
            if not folder.split():  # the disk was full before it could be written
                folder.save_split(split_of(experiment.data.federation))
        go_back(experiment, folder)
        folder.log(f"resumed after round {experiment.engine.state.round}")
        return experiment.go(replace(folder, made_with=config), watch)


def go_back(experiment: Experiment, folder: RunFolder) -> bool:
    """Put a run where its last checkpoint left it, if it has one; return whether it has.

    Whatever the folder says of later rounds is dropped. The log says if it is the checkpoint before the last one.
    """
    has_checkpoint = folder.checkpoint.exists()
    with folder.resumable():
        if has_checkpoint and (note := experiment.engine.state.restore(folder.checkpoint)):
            folder.log(note)
        folder.forget_from(experiment.engine.state.round)
    return has_checkpoint


def tracked_by(folder: RunFolder, track: str, objects: Objects = NO_OBJECTS) -> Config:
    """Return the settings of a run in its folder, with another tool that tracks it from now on if one is named."""
    config = folder.config(objects)
    if track:
        config = replace(config, run=replace(config.run, track=typed(track, options(RunConfig)["track"], "run.track")))
        folder.write("config.toml", config.toml())
    return config
