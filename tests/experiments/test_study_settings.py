"""What the papers state of their tables and figures is what their studies run."""

from __future__ import annotations

from typing import Any

import pytest

from imperfed.cli.typed_words import configs
from imperfed.experiments.config import Config
from imperfed.experiments.study import studies


def config(name: str, column: str, row: int = 0) -> Config:
    study = studies()[name]
    where = study.column(column)
    return configs(study.words(where))(study.method(study.rows[row], where), 0)


@pytest.mark.parametrize(
    ("column", "steps", "tau"),
    [
        ("Linear on MNIST", 1000, 20),
        ("Logistic on MNIST", 1000, 20),
        ("LeNet-5 on MNIST", 1000, 40),
        ("LeNet-5 on CIFAR-10", 10000, 40),
        ("VGG-16 on CIFAR-10", 10000, 40),
        ("LeNet-5 on UCI-HAR", 4000, 40),
    ],
)
def test_pfedmo_runs_with_the_settings_of_the_thesis(column: str, steps: int, tau: int) -> None:
    found = config("pfedmo/table-3.2", column).flat()
    assert (found["local.steps"], found["local.steps"] * found["rounds.rounds"]) == (tau, steps)
    assert (found["local.batch"], found["local.lr"], found["split.sites"]) == (64, 0.01, 4)
    assert (found["method.gamma"], found["method.pi"], found["local.momentum"]) == (0.5, 1.0, 0.0)
    others = [config("pfedmo/table-3.2", column, row).flat() for row in range(1, 14)]
    momenta = ("gamma", "beta", "beta_local", "beta_global", "mu_s", "b", "gamma_a")
    assert {one[f"method.{key}"] for one in others for key in momenta if f"method.{key}" in one} == {0.5}


@pytest.mark.parametrize(("column", "batch"), [("mnist", 256), ("cifar10", 256), ("lost", 32), ("birdsong", 32)])
def test_pfedpll_runs_with_the_settings_of_the_thesis(column: str, batch: int) -> None:
    found = config("pfedpll/table-4.2", column).flat()
    wanted = {"rounds.rounds": 100, "local.steps": 40, "local.lr": 0.01, "local.momentum": 0.9, "split.sites": 4}
    wanted |= {"partition.beta": 0.5, "local.batch": batch, "split.partition": "dirichlet", "split.test": 0.2}
    assert {key: found[key] for key in wanted} == wanted
    if column in ("mnist", "cifar10"):
        assert found["candidates.rho"] == 0.4
    if column == "mnist":
        assert (found["candidates.mean_size"], found["model.name"]) == (4.93, "lenet5")


@pytest.mark.parametrize(
    ("column", "rounds", "lr"),
    [
        ("COMPAS i.i.d. PLFA", 50, 0.01),
        ("COMPAS Dirichlet Mixup", 50, 0.01),
        ("Student i.i.d. PAFA", 20, 0.02),
        ("Student Dirichlet PLFA", 60, 0.02),
    ],
)
def test_fairness_runs_with_the_settings_of_the_thesis(column: str, rounds: int, lr: float) -> None:
    found = config("fairness/table-5.1", column, 5).flat()
    wanted = {"rounds.rounds": rounds, "local.lr": lr, "local.momentum": 0.9, "split.sites": 10, "split.test": 0.3}
    wanted |= {"attack.adversaries": 3, "defence.dummy_rows": 100, "defence.dummy_steps": 20, "defence.kappa": 0.5}
    wanted |= {"candidates.flip": 0.3, "local.epochs": 1, "local.batch": 32, "model.hidden": 64, "split.public": 0.0}
    assert {key: found[key] for key in wanted} == wanted
    if "Dirichlet" in column:
        assert found["partition.beta"] == 1.0
    unprivileged = "High" if "COMPAS" in column else "F"
    assert (found["fairness.target"], found["fairness.unprivileged"]) == ("Asian", unprivileged)
    assert (found["defence.theta_low"], found["defence.theta_high"], found["defence.rho"]) == (0.1, 0.9, 0.1)


STATED: list[tuple[str, str, dict[str, Any]]] = [
    ("fairness/table-5.2", "Mixup", {"rounds.rounds": 40, "attack.adversaries": 3, "split.partition": "iid"}),
    ("fairness/figure-5.3a", "PLFA", {"rounds.rounds": 100, "run.attack": "plfa"}),
    ("fairness/figure-5.3b", "200 rows", {"rounds.rounds": 50, "defence.dummy_rows": 200}),
    ("fairness/figure-5.3c", "20 %", {"rounds.rounds": 80, "attack.adversaries": 2, "run.attack": "mixup"}),
    ("fairness/figure-5.3d", "100 sites", {"rounds.rounds": 100, "attack.adversaries": 30, "split.sites": 100}),
    ("fairness/figure-5.4", "40 sites", {"rounds.rounds": 100, "split.sites": 40, "run.defence": "fairfedpapl"}),
    ("pfedpll/figure-4.3a", "mnist", {"rounds.rounds": 100, "local.batch": 256, "method.lci": False}),
    ("pfedpll/figure-4.3b", "lost", {"rounds.rounds": 100, "local.batch": 32, "objective.lambda1": 0.0}),
    ("pfedpll/figure-4.4", "rho 0.2", {"candidates.rho": 0.2, "candidates.mean_size": 2.99, "model.name": "lenet5"}),
    ("pfedpll/figure-4.4", "rho 0.3", {"candidates.rho": 0.3, "candidates.mean_size": 3.97}),
    ("pfedpll/figure-4.4", "rho 0.4", {"candidates.rho": 0.4, "candidates.mean_size": 4.93, "rounds.rounds": 100}),
    ("pfedpll/figure-4.5", "K = 80", {"split.sites": 80, "rounds.rounds": 100, "local.batch": 256}),
    ("pfedmo/figure-3.1a", "tau 20", {"local.steps": 20, "rounds.rounds": 50, "method.pi": 0.5, "method.gamma": 0.5}),
    ("pfedmo/figure-3.1b", "gamma 0.9", {"method.gamma": 0.9, "method.pi": 0.5, "local.steps": 40}),
    ("pfedmo/figure-3.1c", "pi 0.5", {"method.gamma": 0.5, "method.pi": 0.5, "local.steps": 40}),
    ("pfedmo/figure-3.2ab", "N = 100", {"split.sites": 100, "local.steps": 40, "rounds.rounds": 25}),
    ("pfedmo/figure-3.2c", "N = 16", {"split.sites": 16, "partition.per_site": 3, "method.gamma": 0.5}),
    ("pfedmo/figure-3.3", "9 classes", {"partition.per_site": 9, "split.sites": 4, "method.pi": 0.5}),
    ("pfedmo/figure-3.4", "mnist", {"partition.sizes": (5000, 12500, 17500, 25000), "rounds.max_share": 0.25}),
    ("pfedmo/figure-3.5", "xi = 0.05", {"partition.beta": 0.05, "method.pi": 0.5, "split.sites": 4}),
    (
        "pfedmo/figure-3.7-rounds",
        "tau 20",
        {"local.steps": 20, "split.sites": 16, "rounds.target": 0.85, "method.pi": 1.0},
    ),
    ("fedpsl/table-4", "chestxray14", {"split.sites": 6, "local.epochs": 10, "rounds.rounds": 10}),
    ("fb-nll/table-9", "CIFAR-10 with 3 tasks", {"partition.tasks": 3, "repair.groups": 3, "split.sites": 20}),
    ("fb-nll/table-11", "MNIST with 5 tasks", {"partition.tasks": 5, "repair.groups": 5, "run.repair": "fb-nll"}),
    ("fb-nll/figure-5", "M = 20", {"repair.M": 20, "repair.correct": False, "partition.tasks": 3}),
]


@pytest.mark.parametrize(("name", "column", "stated"), STATED, ids=[f"{name}, {column}" for name, column, _ in STATED])
def test_what_a_paper_states_of_a_table_is_what_is_run(name: str, column: str, stated: dict[str, Any]) -> None:
    rows = range(len(studies()[name].rows))
    found = [config(name, column, row).flat() for row in rows]
    for key, value in stated.items():
        assert value in [flat.get(key) for flat in found], key
    common = {key for key in stated if key.partition(".")[0] in ("rounds", "split", "partition", "local", "candidates")}
    assert all(flat[key] == stated[key] for flat in found for key in common)


def test_fedpsl_runs_with_the_schedule_of_the_paper() -> None:
    found = config("fedpsl/table-2", "chestxray14").flat()
    assert (found["rounds.rounds"], found["local.epochs"], found["local.lr"], found["split.sites"]) == (
        10,
        10,
        0.001,
        4,
    )
    for column, epochs in (("E = 10", 10), ("E = 20", 20), ("E = 50", 50), ("E = 100", 100)):
        found = config("fedpsl/table-5", column).flat()
        assert (found["local.epochs"], found["local.epochs"] * found["rounds.rounds"]) == (epochs, 100)


def test_fedalc_takes_the_papers_steps_at_the_server() -> None:
    products = []
    for column in studies()["fedalc/table-6-lambda"].columns:
        found = config("fedalc/table-6-lambda", column.name, 1).flat()
        products.append(round(float(found["method.lam"]) * float(found["method.lr_server"]), 6))
        assert found["method.neighbours"] == 5
    assert products == [0.0001, 0.001, 0.01, 0.015, 0.02, 0.05]
