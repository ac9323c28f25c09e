"""Settings: defaults, presets, files and words become one checked whole, and that whole can be written and read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.algorithms import catalogue
from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.pfedpll import LCP, PFedPLL
from imperfed.algorithms.proden import PRODEN
from imperfed.attacks import attacks
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.objective import Objective
from imperfed.data.corruption.annotations.drawn import DrawnAnnotation
from imperfed.data.corruption.annotations.listed import ListedAnnotation
from imperfed.data.corruption.candidates.flip import FlippedSets
from imperfed.data.corruption.candidates.instance import InstanceSets
from imperfed.data.corruption.noise.uniform_noise import UniformNoise
from imperfed.data.partitions.classes import ClassesPartition
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.quantity import QuantityPartition
from imperfed.defences import defences
from imperfed.experiments.config import Config, RunConfig
from imperfed.experiments.experiment_file import read
from imperfed.experiments.presets import PRESETS
from imperfed.experiments.resolving import resolve
from imperfed.experiments.setting_sections import CHOSEN, FIXED, GENERATORS, options
from imperfed.experiments.values import typed
from imperfed.repairs import repairs


def test_words_win_over_a_file_a_file_over_a_preset_and_that_over_defaults() -> None:
    preset = PRESETS["mnist"]["local.batch"]
    assert resolve().local.batch == 32 != preset
    assert resolve(words={"data": "mnist"}).local.batch == preset
    file = {"run": {"data": "mnist", "seed": 5}, "local": {"batch": 7, "lr": 0.5}}
    assert resolve(file).local.batch == 7
    config = resolve(file, {"batch": "9", "seed": "6"})
    assert (config.local.batch, config.local.lr, config.run.seed, config.run.data) == (9, 0.5, 6, "mnist")


def test_fedaws_starts_from_all_pairs_and_fedalc_from_its_neighbours() -> None:
    near, every = (resolve(words={"data": "bibtex", "method": name}).method for name in ("fedalc", "fedaws"))
    assert (near.neighbours, near.lam * near.lr_server, near.lr_w) == (5, pytest.approx(0.1), 0.01)
    assert (every.neighbours, every.lam * every.lr_server, every.lr_w) == (0, pytest.approx(0.01), 0.01)


def test_methods_and_objectives_are_chosen_by_name() -> None:
    assert resolve(words={"method": "pfedpll"}).method == PFedPLL()
    assert resolve(words={"method": "fedavg"}).method == FedAvg(objective=None)
    assert resolve(words={"method": "cc"}).method == FedAvg(objective=CC())
    assert resolve(words={"method": "cc", "objective": "cc"}).method == FedAvg(objective=CC())
    assert resolve(words={"method": "pfedpll+proden"}).method == PFedPLL(objective=PRODEN())
    assert resolve(words={"method": "pfedpll", "objective": "proden"}).method == PFedPLL(objective=PRODEN())


def test_a_method_takes_its_own_settings_and_those_of_its_objective() -> None:
    words = {"method": "pfedpll", "lambda2": "0.25", "kl": "False", "method.size": "8"}
    assert resolve(words=words).method == PFedPLL(objective=LCP(lambda2=0.25), kl=False, size=8)
    with pytest.raises(UsageError, match="unknown setting 'lambda2'"):
        resolve(words={"method": "fedavg", "lambda2": "0.25"})


def test_a_key_needs_its_section_only_where_two_have_it() -> None:
    with pytest.raises(UsageError, match=r"could be objective\.beta or partition\.beta: say which"):
        resolve(words={"method": "lw", "beta": "3"})
    config = resolve(words={"method": "lw", "objective.beta": "3", "partition.beta": "4"})
    assert (config.flat()["objective.beta"], config.flat()["partition.beta"]) == (3.0, 4.0)
    assert resolve(words={"run.seed": "3"}).run.seed == 3
    assert resolve(words={"model": "lenet5"}).model.name == "lenet5"
    with pytest.raises(UsageError, match=r"unknown setting 'run\.lr'"):
        resolve(words={"run.lr": "3"})


HOLDERS = {"cover": {"partition": "classes"}, "sizes": {"partition": "quantity"}}
"""What must be chosen for a key to be known."""


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("steps", "12", 12),
        ("steps", "1e3", 1000),
        ("steps", 12.0, 12),
        ("run.seed", "9007199254740993", 9007199254740993),  # one more than a float can tell
        ("run.seed", "-3", -3),
        ("lr", "1e-3", 0.001),
        ("lr", 1, 1.0),
        ("lr", ".5", 0.5),
        ("lr", "1.", 1.0),
        ("steps", " +3 ", 3),
        ("cover", "TRUE", True),
        ("cover", False, False),
        ("sizes", "3, 4", (3, 4)),
        ("sizes", [3, 4], (3, 4)),
        ("sizes", "", ()),
        ("sizes", "1e3,2.0", (1000, 2)),
        ("device", "cpu", "cpu"),
    ],
)
def test_values_take_the_type_of_their_field(key: str, value: Any, meant: Any) -> None:
    flat = resolve(words={key: value} | HOLDERS.get(key, {})).flat()
    found = next(v for name, v in flat.items() if name == key or name.endswith(f".{key}"))
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        *(("steps", value, "a whole number") for value in ("two", "1.5", "", "inf", "nan", True, None, [3])),
        *(("lr", value, "a number") for value in ("fast", "", "inf", "nan", True, None)),
        *(("cover", value, "true or false") for value in ("yes", 2, "", "2")),
        *(("sizes", value, "whole numbers, such as 1,2,3") for value in ("1,b", 3, [1.5], [True])),
        ("run.data", 3, "text"),
    ],
)
def test_values_of_another_type_are_refused(key: str, value: Any, wanted: str) -> None:
    with pytest.raises(UsageError, match=f"takes {wanted}; got"):
        resolve(words={key: value} | HOLDERS.get(key, {}))


@pytest.mark.parametrize(
    ("method", "key", "value", "message"),
    [
        ("fedavg", "device", "gpu", r"unknown value of run\.device 'gpu'. Did you mean 'cpu'\? Known: auto, cpu, cuda"),
        ("fedavg", "device", "cuda:", r"unknown value of run\.device 'cuda:'.* Known: auto"),
        ("fedavg", "on_failure", "skp", r"unknown value of rounds\.on_failure 'skp'. Did you mean 'skip'\?"),
        ("fedavg", "norm", "batchs", r"unknown value of model\.norm 'batchs'. Did you mean 'batch'\?"),
        ("mime", "form", "papr", r"unknown value of method\.form 'papr'. Did you mean 'paper'\?"),
        ("lw", "psi", "relu", r"unknown value of objective\.psi 'relu'. Known: ce, sigmoid"),
        ("scaffold", "option", "3", r"unknown value of method\.option '3'. Known: 1, 2"),
    ],
)
def test_a_value_that_is_no_choice_is_told_the_choices(method: str, key: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(words={"method": method, key: value})


EVERYTHING = {
    "method": [name for name, kind in catalogue().items() if issubclass(kind, Algorithm)],
    "objective": [name for name, kind in catalogue().items() if issubclass(kind, Objective)],
    "repair": [*repairs()],
    "attack": [*attacks()],
    "defence": [*defences()],
}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in EVERYTHING.items() for name in names])
def test_every_choice_of_every_part_is_taken_and_nothing_else(part: str, name: str) -> None:
    words = {"method": "fedavg", "objective": "cc"} | {part: name} if part != "method" else {"method": name}
    config = resolve(words=words)
    own = config.method.objective if part == "objective" else getattr(config, part)
    for key, kind in options(type(own)).items():
        if get_origin(kind) is Literal:
            for choice in get_args(kind):
                assert resolve(words=words | {f"{part}.{key}": choice}).flat()[f"{part}.{key}"] == choice
            with pytest.raises(UsageError, match=rf"unknown value of {part}\.{key} 'no such'"):
                resolve(words=words | {f"{part}.{key}": "no such"})


def test_a_choice_may_be_a_number() -> None:
    assert resolve(words={"method": "scaffold", "option": "1"}).flat()["method.option"] == 1


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (float | Literal["auto"], "auto", "auto"),
        (float | Literal["auto"], "0.5", 0.5),
        (int | None, "3", 3),
        (tuple[str, ...], "a, b", ("a", "b")),
        (tuple[float, ...], "1,0.5", (1.0, 0.5)),
    ],
)
def test_settings_of_third_parties_may_be_unions_and_lists(kind: Any, value: Any, meant: Any) -> None:
    assert typed(value, kind, "method.x") == meant


def test_unions_say_all_that_they_take() -> None:
    with pytest.raises(UsageError, match=r"setting method\.x takes a number or auto; got 'fast'"):
        typed("fast", float | Literal["auto"], "method.x")
    with pytest.raises(UsageError, match=r"setting method\.x takes comma-separated values; got \[inf\]"):
        typed([float("inf")], tuple[float, ...], "method.x")


@pytest.mark.parametrize("method", [*catalogue(), "pfedpll+lw", "local-only+cc"])
def test_the_written_settings_read_back_as_themselves(method: str, tmp_path: Path) -> None:
    config = resolve(words={"method": method, "partition": "quantity", "sizes": "1,2", "lr": "1e-7"})
    path = tmp_path / "config.toml"
    path.write_text(config.toml())
    again = resolve(read(path))
    assert again == config
    assert again.digest() == config.digest()
    assert set(tomllib.loads(config.toml())) >= {"run", "split", "labels", "model", "local", "rounds"}


@settings(deadline=None, max_examples=25)
@given(
    data=st.text(st.characters(codec="utf-8"), min_size=1),
    seed=st.integers(-(2**62), 2**62),
    lr=st.floats(1e-300, 1e300),
    sizes=st.lists(st.integers(0, 10**9), max_size=4),
)
def test_any_settings_read_back_as_themselves(data: str, seed: int, lr: float, sizes: list[int]) -> None:
    config = resolve(words={"data": data, "seed": seed, "lr": lr, "partition": "quantity", "sizes": sizes})
    assert (config.run.data, config.run.seed, config.local.lr) == (data, seed, lr)
    assert config.split.partition == QuantityPartition(tuple(sizes))
    assert resolve(tomllib.loads(config.toml())) == config


def test_every_setting_is_in_the_file_and_changes_the_digest() -> None:
    config = resolve()
    names = {f"{section}.{key}" for section in vars(Config)["__dataclass_fields__"] for key in _keys(config, section)}
    generators = (config.split.partition, config.labels.candidates, config.labels.noise, config.labels.annotates)
    for section, part in zip(("objective", *GENERATORS), (LCP(), *generators), strict=True):
        names |= {f"{section}.{key}" for key in options(type(part))}
    assert names == set(config.flat())
    digests = {resolve(words={key: value}).digest() for key, value in (("lr", 0.5), ("seed", 1), ("lambda1", 2))}
    assert len(digests | {config.digest()}) == 4


def _keys(config: Config, section: str) -> dict[str, Any]:
    part = getattr(config, section)
    return {} if part is None else options(type(part))


def test_the_page_of_settings_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for section, schema in {"run": RunConfig, **FIXED}.items():
        missing = [key for key in options(schema) if f"`{key}`" not in rows[section]]
        assert not missing, f"{section}: {missing}"
    assert {*CHOSEN, *GENERATORS} <= set(rows)
    for section, choice in GENERATORS.items():
        keys = {key for generator in choice.known().values() for key in options(generator)}
        missing = [name for name in {*choice.known(), *keys} if f"`{name}`" not in rows[section]]
        assert not missing, f"{section}: {missing}"


# -- generators of data ------------------------------------------------------------------------------------------------


def test_generators_are_chosen_by_name_and_have_sections_of_their_own() -> None:
    words = {"partition": "classes", "per_site": "2", "candidates.rho": "0.3", "noise": "uniform", "noise_floor": "0.1"}
    config = resolve(words=words)
    assert config.split.partition == ClassesPartition(per_site=2)
    assert config.labels.candidates == InstanceSets(rho=0.3, mean_size=3.0)  # of the preset of digits
    assert config.labels.noise == UniformNoise(noise_floor=0.1)
    flat = config.flat()
    assert (flat["split.partition"], flat["partition.per_site"], flat["noise.noise_floor"]) == ("classes", 2, 0.1)
    file = {"split": {"partition": "dirichlet"}, "partition": {"beta": 2}}
    assert resolve(file).split.partition == DirichletPartition(beta=2.0)


def test_a_preset_speaks_of_a_generator_only_if_it_was_chosen() -> None:
    assert resolve(words={"candidates": "flip"}).labels.candidates == FlippedSets()
    assert resolve(words={"data": "compas"}).split.partition == IIDPartition()
    assert resolve(words={"data": "compas", "partition": "dirichlet"}).split.partition == DirichletPartition(beta=1.0)


def test_words_that_choose_another_generator_take_the_place_of_a_files_section() -> None:
    file = tomllib.loads(resolve(words={"partition": "classes", "per_site": "2"}).toml())
    assert resolve(file, {"partition": "iid"}).split.partition == IIDPartition()
    assert resolve(file, {"partition": "classes"}).split.partition == ClassesPartition(per_site=2)
    with pytest.raises(UsageError, match=r"'partition\.beta' belongs to partition = dirichlet, but partition is iid"):
        resolve({"split": {"partition": "iid"}, "partition": {"beta": 1.0}})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"partition": "dirichlett"}, "unknown partition 'dirichlett'. Did you mean 'dirichlet'"),
        ({"noise": "unifrm"}, "unknown noise 'unifrm'. Did you mean 'uniform'"),
        ({"partition": 3}, r"split\.partition takes text; got 3"),
        ({"per_site": "3"}, "'per_site' belongs to partition = classes, but partition is dirichlet here: choose it"),
        ({"noise_rate": "0.3"}, "belongs to noise = class-dependent or class-independent, but noise is none"),
        ({"partition.rho": "0.3"}, r"unknown setting 'partition\.rho'"),
        ({"beta": "-1"}, "beta must be a positive number"),
        ({"method": "fedalc", "noise": "4"}, r"'noise' could be method\.noise or labels\.noise: say which"),
    ],
)
def test_what_cannot_be_of_a_generator_is_named(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(words=words)


def test_lists_of_classes_are_short_for_the_pattern_that_takes_them() -> None:
    config = resolve(words={"annotates": "a, b; b, c"})
    assert config.labels.annotates == ListedAnnotation("a, b; b, c")
    assert resolve(words={"annotates": "listed", "lists": "a, b; b, c"}) == config
    assert resolve({"labels": {"annotates": "a, b; b, c"}}) == config
    assert resolve(tomllib.loads(config.toml())) == config
    assert resolve(tomllib.loads(config.toml()), {"annotates": "drawn"}).labels.annotates == DrawnAnnotation()


def test_numbers_of_numpy_are_numbers() -> None:
    """As in a loop over `np.logspace`."""
    words = {"method": np.str_("fedavg"), "rounds": np.int64(3), "lr": np.float32(0.5), "lazy": np.bool_(False)}
    plain = {"method": "fedavg", "rounds": 3, "lr": 0.5, "lazy": False}
    assert resolve(words=words).toml() == resolve(words=plain).toml()
    with pytest.raises(UsageError, match=r"setting rounds.rounds takes a whole number; got np.float64\(2.5\)"):
        resolve(words={"rounds": np.float64(2.5)})
    assert resolve(words={"widths": np.array([8, 4])}).model.widths == (8, 4)
