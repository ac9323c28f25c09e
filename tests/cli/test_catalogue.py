"""`list` and `show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from imperfed import algorithms
from imperfed.algorithms import catalogue
from imperfed.core.labels import KINDS
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.candidates import candidate_generators
from imperfed.data.corruption.noise import noises
from imperfed.data.partitions import partitions
from imperfed.data.sources import sources
from imperfed.models import models
from tests.support.terminal import done, imperfed, strict

GENERATORS = {
    "partitions": partitions,
    "candidates": candidate_generators,
    "noise": noises,
    "annotations": annotation_patterns,
}
ALL = {"algorithms": catalogue, **GENERATORS, "labels": lambda: KINDS, "datasets": sources, "models": models}


@pytest.mark.parametrize("what", ALL)
def test_lists_name_everything_for_people_and_for_machines(what: str) -> None:
    names = list(ALL[what]())
    assert sorted(entry["name"] for entry in strict(done("list", what, "--json").out)) == sorted(names)
    shown = done("list", what).out
    assert all(f" {name} " in shown for name in names)


def test_the_list_is_of_algorithms_unless_told_otherwise() -> None:
    assert done("list").out == done("list", "algorithms").out
    entries = {entry["name"]: entry for entry in strict(done("list", "--json").out)}
    assert entries["pfedpll"]["is"] == "algorithm"
    assert entries["pfedpll"]["learns from"] == "candidates"
    assert entries["fedavg"]["learns from"] == "any kind"
    assert entries["cross-entropy"] == {
        "name": "cross-entropy",
        "is": "objective",
        "learns from": "exact",
        "about": entries["cross-entropy"]["about"],
    }


def test_datasets_say_where_they_are_looked_for_and_come_from(tmp_path: Path) -> None:
    shown = done("list", "datasets", IMPERFED_DATA=str(tmp_path)).out
    assert f"Looked for in {tmp_path}" in shown
    for name, source in sources().items():
        assert (f"{name} is missing. It comes from {source.origin}" in shown) == bool(source.files)
        assert all(f"{path}  sha256 {digest}" in shown for path, digest in source.files.items())
    entries = {entry["name"]: entry for entry in strict(done("list", "datasets", "--json").out)}
    assert entries["digits"]["present"] == "yes"
    assert entries["mnist"]["present"] == "no"


def test_inherited_settings_are_explained_too() -> None:
    shown = done("show", "fedalc").out
    assert "lam = 10.0    # lambda" in shown  # FedAwS's
    assert "clip_w = 0.001    # S: with noise_w" in shown  # of both


def test_a_method_shows_what_it_decides_itself_of_the_training_recipe() -> None:
    assert "local.optimizer stays 'sgd': its sites make Nesterov steps" in done("show", "fednag").out
    assert "local.schedule stays 'constant': its learning rates are lr_theta" in done("show", "fedaws").out
    assert "any local.optimizer, local.schedule, local.clip and local.augment" in done("show", "cc").out


def test_a_study_shows_its_datasets_and_methods() -> None:
    shown = done("show", "pfedpll/table-4.2").out
    assert "mnist, fashion-mnist" in shown
    assert "abs-gce" in shown


def test_a_method_shows_its_symbols_settings_and_source() -> None:
    shown = done("show", "pfedpll").out
    assert "w^rep           every weight below `corr`" in shown
    assert "lci = True    # twin modules with the correlation layer, Sec. 3.2" in shown
    assert "objective.lambda1 = 1.0    # Eq. 9, weight of L_s" in shown
    source = Path(strict(done("show", "pfedpll", "--json").out)["source"])
    assert source == Path(algorithms.__file__).with_name("pfedpll.py")
    assert str(source) in shown


@pytest.mark.parametrize("name", ["fb-nll", "fairfedpapl", "fedalc", "fedalc-fixed"])
def test_a_paper_of_several_files_shows_its_overview(name: str) -> None:
    shown = strict(done("show", name, "--json").out)
    assert "Departs from the" in shown["paper and symbols"]
    assert f"{Path(shown['source']).name} " in shown["paper and symbols"]  # in the table of files


def test_datasets_and_models_have_pages_too(tmp_path: Path) -> None:
    (tmp_path / "pll").mkdir()
    (tmp_path / "pll" / "lost.mat").write_bytes(b"something else")
    lost = strict(done("show", "lost", "--json", IMPERFED_DATA=str(tmp_path)).out)
    assert lost["verified"] == "differs: pll/lost.mat"
    assert lost["looked for in"] == str(tmp_path)
    assert "any shape" in done("show", "mlp").out


@pytest.mark.parametrize("name", [*catalogue(), *sources(), *models()])
def test_everything_has_a_page(name: str) -> None:
    entry = strict(done("show", name, "--json").out)
    assert entry["name"] == name
    assert entry["about"]


@pytest.mark.parametrize("name", [f"{what}.{name}" for what, known in GENERATORS.items() for name in known()])
def test_every_generator_has_a_page_of_its_own(name: str) -> None:
    what, _, own = name.partition(".")
    entry = strict(done("show", name, "--json").out)
    assert (entry["name"], Path(entry["source"]).parent.name) == (own, what)
    assert entry["about"].endswith(".")
    assert entry["paper and symbols"]


def test_a_name_of_two_lists_must_say_which() -> None:
    said = imperfed("show", "uniform")
    assert said.code == 2
    assert "'uniform' could be candidates.uniform or noise.uniform: say which" in said.err
    assert "beta = 0.5    # the smaller, the more the sites differ" in done("show", "dirichlet").out
