"""What a run is where nothing is set, and what the presets of the papers' data set: other values are other results."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.candidates import candidate_generators
from imperfed.data.corruption.noise import noises
from imperfed.data.partitions import partitions
from imperfed.data.split import SplitConfig
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.experiments.resolving import resolve

SECTIONS: dict[type[Any], dict[str, Any]] = {
    SplitConfig: {"sites": 4, "test": 0.2, "validation": 0.0, "standardise": False, "common_test": False}
    | {"trusted": 0.0, "public": 0.2},
    Local: {"steps": 40, "epochs": 0, "min_steps": 0, "max_steps": 0, "batch": 32, "lr": 0.01, "momentum": 0.9}
    | {"weight_decay": 0.0, "optimizer": "sgd", "schedule": "constant", "warmup": 0, "decay_every": 10, "decay": 0.1}
    | {"clip": 0.0, "augment": ""},
    Rounds: {"rounds": 30, "participation": 1.0, "workers": 0, "evaluate_every": 1, "evaluate_sites": 1000}
    | {"checkpoint_every": 10, "on_failure": "skip", "retries": 2, "quorum": 0.5, "patience": 0, "keep_best": True}
    | {"max_share": 0.0, "site_memory": 1000.0, "target": 0.0},
}
GENERATED: dict[str, dict[str, Any]] = {
    "dirichlet": {"beta": 0.5, "min_size": 10},
    "classes": {"per_site": 3, "cover": True},
    "quantity": {"sizes": ()},
    "tasks": {"tasks": 2, "task_of": (), "impurity": 0.0},
    "flip": {"flip": 0.3, "edge": "min2"},
    "instance": {"rho": 0.4, "normalise": "mean", "temperature": 1.0, "mean_size": 0.0},
    "matrix": {"matrix": "band", "matrix_q": 0.5},
    "uniform sets": {"uniform": "exact"},
    "class-dependent": {"noise_rate": 0.4},
    "class-independent": {"noise_rate": 0.4},
    "instance-dependent": {"noisy_sites": 0.4, "lowest_rate": 0.5, "highest_rate": 0.7},
    "uniform": {"noisy_sites": 0.6, "noise_floor": 0.5},
    "auto": {"annotated": 0.5},
    "drawn": {"annotated": 0.5},
}
"""Of generators that have settings with a default; two are called `uniform`."""


@pytest.mark.parametrize("section", SECTIONS)
def test_the_settings_of_a_section(section: type[Any]) -> None:
    default = section()
    plain = {field.name: getattr(default, field.name) for field in fields(section) if field.name != "partition"}
    assert plain == SECTIONS[section]


def test_the_settings_of_generators() -> None:
    sets = {f"{name} sets" if name == "uniform" else name: kind for name, kind in candidate_generators().items()}
    known = {**partitions(), **sets, **noises(), **annotation_patterns()}
    ours = {name: kind for name, kind in known.items() if kind.__module__.startswith("imperfed.") and name != "listed"}
    found = {name: {field.name: getattr(kind(), field.name) for field in fields(kind)} for name, kind in ours.items()}
    assert {name: settings for name, settings in found.items() if settings} == GENERATED
    assert SplitConfig().partition == ours["dirichlet"]()


FEDALC = {"split.partition": "label", "split.test": 0.34, "split.validation": 0.1, "split.public": 0.0}
FEDALC |= {"model.name": "text", "local.steps": 1, "local.batch": 256, "rounds.rounds": 300, "method.one_pass": True}
FEDALC |= {"method.neighbours": 5, "method.lr_theta": 1.0, "method.lr_w": 0.01, "method.lr_server": 0.01}
THESIS = {"split.sites": 10, "split.partition": "iid", "split.test": 0.3, "split.public": 0.0, "candidates.flip": 0.3}
THESIS |= {"candidates.edge": "raw", "labels.candidates": "flip", "model.name": "mlp", "model.hidden": 64}
THESIS |= {"local.epochs": 1, "local.batch": 32, "fairness.target": "Asian"}
COMPAS = THESIS | {"local.lr": 0.01, "rounds.rounds": 50, "fairness.unprivileged": "High"}
STUDENT = THESIS | {"local.lr": 0.02, "rounds.rounds": 20, "fairness.unprivileged": "F"}
PFEDPLL = {"rounds.rounds": 100, "local.steps": 40, "local.lr": 0.01, "partition.beta": 0.5, "split.sites": 4}
IMAGES = PFEDPLL | {"local.batch": 256, "candidates.rho": 0.4}
GRAY = IMAGES | {"model.name": "lenet5", "candidates.mean_size": 4.93}
SETS = PFEDPLL | {"local.batch": 32, "model.name": "mlp", "model.layers": 2, "model.hidden": 256}
FEDPSL = {"split.sites": 4, "split.common_test": True, "labels.annotates": "table-1", "local.epochs": 2}
FEDPSL |= {"local.lr": 0.001, "rounds.rounds": 10, "model.name": "cnn", "split.partition": "iid", "split.public": 0.0}
OURS = {"model.name": "mlp", "model.hidden": 64, "rounds.rounds": 20, "candidates.mean_size": 3.0}
BY_DATA: dict[str, dict[str, Any]] = {"digits": OURS, "cifar10": IMAGES | {"model.name": "resnet34"}}
BY_DATA |= dict.fromkeys(("mnist", "fashion-mnist"), GRAY) | dict.fromkeys(("lost", "birdsong", "italian"), SETS)
BY_DATA |= dict.fromkeys(("compas", "compas-without-violence"), COMPAS) | {"student": STUDENT, "chestxray14": FEDPSL}
BY_DATA |= {"student-without-gpa": STUDENT, "fg-net": SETS}
BY_DATA |= dict.fromkeys(("bibtex", "enron", "rcv1", "delicious", "corel5k"), FEDALC)


@pytest.mark.parametrize("data", BY_DATA)
def test_the_preset_of_a_dataset(data: str) -> None:
    """As the papers state it, or as `experiments/presets.py` says that it is ours."""
    wanted = BY_DATA[data]
    found = resolve(words={"data": data, "method": "fedalc" if wanted is FEDALC else "pfedpll"}).flat()
    assert {key: found[key] for key in wanted} == wanted
