"""The data of a run: loaded, attacked and repaired, as its settings say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from imperfed.core.components import Adversaries, RepairResult, UpdateAttack, apply_attack, draw_adversaries
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated, Exact, Labels
from imperfed.data.corruption.annotations.full import FullAnnotation
from imperfed.data.federate import FederatedData, federate
from imperfed.data.files.declaration import Declaration, is_federation, parse, read_declaration
from imperfed.data.files.memory import IN_MEMORY
from imperfed.data.files.reading import read_sites
from imperfed.data.labelling import LabelConfig
from imperfed.data.own_files import federate_files
from imperfed.data.sources import load, sources
from imperfed.engine.conversation import repair_labels
from imperfed.engine.seeds import SERVER, generator
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware


def is_own(data: str) -> bool:
    """Return whether the data are a federation of the user's own files; built-in names take precedence."""
    return data not in sources() and data != IN_MEMORY and is_federation(data)


def same_data(one: Config, other: Config) -> bool:
    """Return whether two runs have the same data before any attack or repair."""
    parts = ((c.run.data, c.run.data_seed, c.split, labelling_of(c)) for c in (one, other))
    return next(parts) == next(parts)


def labelling_of(config: Config) -> LabelConfig:
    """Return how labels are corrupted: as the settings say, or as the method or the repair needs it."""
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
    return federate(load(config.run.data), config.split, labelling_of(config), config.run.data_seed)


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
