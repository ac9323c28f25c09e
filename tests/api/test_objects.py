"""Methods, objectives, models and other parts of a run as Python objects."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import imperfed
from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fedprox import FedProx
from imperfed.algorithms.pfedpll import PFedPLL
from imperfed.api.parts import split_objects
from imperfed.core.errors import UsageError
from imperfed.data.corruption.noise.uniform_noise import UniformNoise
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.defences.median import Median
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.resolving import resolve
from imperfed.experiments.watch import Watch
from imperfed.results.folder import RunFolder
from tests.support.own_parts import HalfWay, Net, Tempered, wide
from tests.support.terminal import arrays, products, surroundings, write
from tests.support.terminal import imperfed as command_line

pytestmark = pytest.mark.usefixtures("no_page")
FEW = {"rounds": 2, "steps": 3, "workers": 1, "partition": "iid", "lr": 0.1}


@pytest.fixture
def few(tmp_path: Path) -> dict[str, Any]:
    """A small run."""
    return {"data": str(write(tmp_path / "mine.npz")), "out": tmp_path / "runs", **FEW}


def same(one: imperfed.RunResult, other: imperfed.RunResult) -> bool:
    """Return whether two runs have the same products and settings."""
    settings = [(result.folder / "config.toml").read_bytes() for result in (one, other)]
    return products(one.folder) == products(other.folder) and settings[0] == settings[1]


def weights(result: imperfed.RunResult) -> dict[str, torch.Tensor]:
    return load_file(result.folder / "models" / "global.safetensors")


def local_method() -> type[imperfed.Algorithm]:
    """Return a class that nobody can import."""

    @dataclass(frozen=True)
    class Local(HalfWay):
        """Known to this function alone."""

        name: ClassVar[str] = "local"

    return Local


# -- the same runs as by name ------------------------------------------------------------------------------------------


def test_instances_and_classes_train_what_their_names_train(few: dict[str, Any]) -> None:
    named = imperfed.run("fedprox", mu=0.3, **few)
    assert same(named, imperfed.run(FedProx(mu=0.3), **few))
    assert same(named, imperfed.run(FedProx, mu=0.3, **few))
    assert not same(named, imperfed.run(FedProx(mu=3.0), **few))


def test_an_objective_by_name_as_an_instance_and_inside_a_method(few: dict[str, Any]) -> None:
    named = imperfed.run("fedavg", objective="tests.support.own_parts:Tempered", heat=3.0, **few)
    assert same(named, imperfed.run("fedavg", objective=Tempered(heat=3.0), **few))
    assert same(named, imperfed.run(FedAvg(objective=Tempered(heat=3.0)), **few))
    assert same(imperfed.run("cc", **few), imperfed.run(CC(), **few))


def test_settings_are_those_of_the_names() -> None:
    def config(**keywords: Any) -> Any:
        objects, words = split_objects(keywords)
        return resolve(words=words, objects=objects)

    assert config(method=PFedPLL()) == config(method="pfedpll")
    assert config(method=PFedPLL(objective=CC())) == config(method="pfedpll+cc")
    assert config(method=PFedPLL(), objective=CC) == config(method="pfedpll", objective="cc")
    assert config(method="cc", partition=DirichletPartition(beta=0.1)) == config(
        method="cc", partition="dirichlet", beta=0.1
    )
    assert config(method="cc", defence=Median()) == config(method="cc", defence="median")
    noisy = config(method="fedavg", noise=UniformNoise(), objective=None)
    assert noisy == config(method="fedavg", noise="uniform")
    by_path = config(method="tests.support.own_parts:HalfWay", share=0.2)
    assert config(method=HalfWay(share=0.2)) == by_path


def test_a_function_and_its_import_path_make_the_same_model(few: dict[str, Any]) -> None:
    named = imperfed.run("cc", model="tests.support.own_parts:wide", **few)
    assert same(named, imperfed.run("cc", model=wide, **few))
    unnamed = imperfed.run("cc", model=lambda shape, classes: wide(shape, classes), **few)
    assert products(named.folder) == products(unnamed.folder)
    assert 'name = "object of tests.api.test_objects:' in (unnamed.folder / "config.toml").read_text()


# -- networks ----------------------------------------------------------------------------------------------------------


def test_a_network_begins_with_its_weights_and_stays_as_it_is(few: dict[str, Any]) -> None:
    net = Net(5)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    still = imperfed.run("cc", model=net, **few | {"lr": 1e-20})
    assert torch.equal(weights(still)["rep.hidden.weight"], before["hidden.weight"])
    assert torch.equal(weights(still)["head.bias"], before["out.bias"])
    moved = imperfed.run("cc", model=net.eval(), **few)
    assert not torch.equal(weights(moved)["rep.hidden.weight"], before["hidden.weight"])
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert isinstance(net.out, nn.Linear)
    assert not net.training
    assert net.hidden.weight.grad is None
    assert same(moved, imperfed.run("cc", model=net, **few))


def test_one_linear_layer_is_a_network(few: dict[str, Any]) -> None:
    assert weights(imperfed.run("cc", model=nn.Linear(4, 3), **few)).keys() == {"head.weight", "head.bias"}


def test_networks_of_other_precision_are_trained_in_float32(few: dict[str, Any]) -> None:
    net = Net(5).double()
    assert weights(imperfed.run("cc", model=net, **few))["head.bias"].dtype == torch.float32
    assert net.out.bias.dtype == torch.float64


def test_a_network_is_handed_over_again_to_predict(few: dict[str, Any]) -> None:
    net = Net(5)
    net.hidden.requires_grad_(False)
    result = imperfed.run("cc", model=net, **few)
    x = arrays()["x"]
    expected = result.predict(x)
    with torch.no_grad():
        net.hidden.weight.add_(1.0)
    assert torch.equal(result.predict(x), expected)
    again = imperfed.load(result.folder)
    assert (again.summary, again.history, again.labels()) == (result.summary, result.history, result.labels())
    with pytest.raises(UsageError, match=r"an object of .*own_parts:Net.*imperfed.load\(folder, model=...\)"):
        again.predict(x)
    assert torch.equal(imperfed.load(result.folder, model=Net(5)).predict(x), expected)
    assert torch.equal(imperfed.load(result.folder, model=lambda: Net(5)).predict(x), expected)
    for command in ("resume", "evaluate"):
        (result.folder / "summary.json").unlink(missing_ok=True)
        said = command_line(command, result.folder)
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert "model was handed over as an object of tests.support.own_parts:Net" in said.err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Net(6), r"model: rep.hidden.weight is of shape \[6, 4\] here and of shape \[5, 4\] in the run; hand over"),
        (wide((4,), 3), r"model: rep.1.weight is of shape \[7, 4\] here and missing in the run"),
        ("mlp", "model: expected the object that was handed over; got a value of type str"),
        (3, "model: expected the name of a model, .* got a value of type int"),
    ],
)
def test_another_network_is_refused(few: dict[str, Any], model: Any, message: str) -> None:
    result = imperfed.run("cc", model=Net(5), **few)
    with pytest.raises(UsageError, match=message):
        imperfed.load(result.folder, model=model)


def test_what_a_run_records(few: dict[str, Any]) -> None:
    result = imperfed.run(local_method()(share=0.25), model=nn.Sequential(*[Net(5)]), **few)
    recorded = json.loads((result.folder / "env.json").read_text())["plug-ins"]
    path = "tests.api.test_objects:local_method.<locals>.Local"
    assert recorded[0] == {"path": path, "object": "method"}
    assert recorded[1]["path"] == "torch.nn.modules.container:Sequential"
    assert (recorded[1]["distribution"], recorded[1]["version"]) == ("torch", torch.__version__)
    assert "(hidden): Linear(in_features=4, out_features=5" in recorded[1]["repr"]
    assert f'method = "{path}"\n' in (result.folder / "config.toml").read_text()
    assert "share = 0.25\n" in (result.folder / "config.toml").read_text()
    assert result.folder.name.startswith("tests.api.test_objects.local_method.Local-mine-")
    long = imperfed.run("cc", model=nn.Sequential(*[nn.Identity()] * 100, Net(5)), **few)
    assert len(json.loads((long.folder / "env.json").read_text())["plug-ins"][0]["repr"]) < 1100


# -- opened again ------------------------------------------------------------------------------------------------------


def test_a_method_of_this_process_alone_is_handed_over_again(few: dict[str, Any]) -> None:
    Local, x = local_method(), arrays()["x"]
    result = imperfed.run(Local(share=0.25), **few | {"workers": 2})
    expected = result.predict(x)
    assert same(result, imperfed.run(Local, share=0.25, **few | {"workers": 2}))
    again = imperfed.load(result.folder)
    assert again.labels().equals(result.labels())
    with pytest.raises(UsageError, match=r"needs its method, .* an object of class .*Local; hand it over again"):
        again.predict(x)
    for value in (Local, Local(share=0.25), local_method()):
        assert torch.equal(imperfed.load(result.folder, method=value).predict(x), expected)
    for command in ("evaluate", "report"):
        said = command_line(command, result.folder)
        assert (said.code, "needs its method" in said.err, "unknown algorithm" in said.err) == (2, True, False)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"method": HalfWay(share=0.1)}, "method: HalfWay has share=0.1, but the run was made with share=0.25"),
        (
            {"method": FedProx},
            "method: FedProx was handed over, but the method of this run is 'tests.",
        ),
        ({"objective": CC}, "objective: CC was handed over, but the objective of this run is not set"),
        ({"model": Net(3)}, "model=...: the model of .* is 'mlp', which is found by name; leave it out"),
        ({"net": Net(3)}, "net=...: no such argument; known: method, objective"),
    ],
)
def test_other_objects_than_those_of_the_run_are_refused(
    few: dict[str, Any], objects: dict[str, Any], message: str
) -> None:
    result = imperfed.run(HalfWay(share=0.25), **few)
    with pytest.raises(UsageError, match=message):
        imperfed.load(result.folder, **objects)


def test_a_resumed_run_ends_as_an_uninterrupted_one(few: dict[str, Any]) -> None:
    method, net = local_method()(share=0.7), Net(5)
    net.hidden.bias.requires_grad_(False)
    few |= {"rounds": 4, "checkpoint_every": 2}
    whole = imperfed.run(method, model=net, objective=Tempered(), **few)

    def stop(report: Any) -> None:
        if report.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imperfed.run(method, model=net, objective=Tempered(), on_round=stop, **few | {"out": few["out"] / "cut"})
    (folder,) = (few["out"] / "cut").iterdir()
    begun = shutil.copytree(folder, folder.with_name("begun"))
    (begun / "checkpoints" / "last.safetensors").unlink()
    for place in (folder, begun):
        with pytest.raises(UsageError, match=r"needs its method.*imperfed.resume\(folder, method=...\)"):
            imperfed.resume(place, model=Net(5))
        with pytest.raises(UsageError, match=r"model: rep.hidden.weight is of shape \[6, 4\] here"):
            imperfed.resume(place, model=Net(6), method=method)
        resumed = imperfed.resume(place, model=Net(5), method=method)
        assert products(resumed.folder) == products(whole.folder)
        assert torch.equal(resumed.predict(arrays()["x"]), whole.predict(arrays()["x"]))


NOTEBOOK = """
import imperfed
import torch
from dataclasses import dataclass
from typing import ClassVar
from torch import nn
from tests.support.own_parts import HalfWay, Tempered

@dataclass(frozen=True)
class Cell(HalfWay):
    name: ClassVar[str] = "cell"

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.first = nn.Identity()

    def forward(self, x):
        return self.out(self.first(x))

few = {"data": "mine.npz", "rounds": 2, "steps": 3, "workers": 2, "partition": "iid"}
result = imperfed.run(Cell(share=0.25), model=Own(), objective=Tempered(3.0), **few)
result.predict(torch.rand(3, 4))
print(result.summary.title)
print(imperfed.compare(["fedavg", Cell()], model=Own, alone=False, **few).table["method"].to_pylist())
try:
    imperfed.compare(["fedavg", Cell()], jobs=2, **few)
except imperfed.core.errors.UsageError as error:
    print(error)
"""


def test_classes_of_a_notebook_run_in_worker_processes(tmp_path: Path) -> None:
    write(tmp_path / "mine.npz")
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(  # like a notebook, a program from stdin is a `__main__` without a file
        [sys.executable, "-"],
        input=NOTEBOOK,
        cwd=tmp_path,
        env=surroundings(PYTHONPATH=root),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "__main__:Cell+tests.support.own_parts:Tempered",
        "['fedavg', 'cell']",
        "jobs=2: other processes import what they run, and __main__:Cell exists only here; put it in a module and name "
        "it as package.module:name",
    ]
    (folder,) = (tmp_path / "runs").glob("__main__.Cell*")
    assert RunFolder(folder).summary() is not None
    assert "needs its method" in command_line("evaluate", folder).err


# -- comparisons -------------------------------------------------------------------------------------------------------


def test_a_comparison_mixes_names_and_objects(few: dict[str, Any]) -> None:
    methods = [
        "fedprox",
        FedProx(mu=0.3),
        FedProx(mu=3.0),
        HalfWay,
        HalfWay(share=0.2),
        FedAvg(objective=Tempered(3.0)),
    ]
    compared = imperfed.compare(methods, alone=False, **few)
    lines = compared.lines
    titles = [line.method for line in lines]
    assert titles == [
        "fedprox",
        "fedprox(mu=0.3)",
        "fedprox(mu=3.0)",
        "half-way",
        "half-way(share=0.2)",
        "fedavg+tempered(heat=3.0)",
    ]
    said = str(compared)
    assert "fedprox(mu=3.0)" in said
    assert said.count("fedprox: FedAvg with a proximal term") == 1
    assert "half-way:" not in said  # its class is the caller's own, and no list has it
    alone = imperfed.run(FedProx(mu=3.0), **few)
    assert lines[2].mean == alone.summary.headline
    with pytest.raises(UsageError, match=r"methods: fedprox\(mu=0.3\) was handed over more than once"):
        imperfed.compare([FedProx(mu=0.3), FedProx(mu=0.3)], **few)
    with pytest.raises(UsageError, match="methods: expected the name of a method"):
        imperfed.compare([Net(3)], **few)


def test_other_processes_cannot_have_what_lives_here(few: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"jobs=2: other processes import .*own_parts:Net exists only here"):
        imperfed.compare(["fedavg"], jobs=2, model=Net(5), **few)
    rows = {"a": (arrays()["x"], arrays()["y"]), "b": (arrays()["x"], arrays()["y"])}
    with pytest.raises(UsageError, match="jobs=2: rows in memory stay in this process; leave it out"):
        imperfed.compare(["fedavg"], rows, jobs=2)


def test_importable_classes_travel_to_other_processes(few: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def begun(self: Any, jobs: int, work: Any, calls: Any, like: Any, folder: Path) -> list[Future[Any]]:
        """Stand in for processes, which take seconds to start: what they are sent is pickled."""
        asked.append(jobs)
        futures: list[Future[Any]] = [Future() for _ in calls]
        for future, call in zip(futures, calls, strict=True):
            carry_out, runs, folder = pickle.loads(pickle.dumps(call))
            future.set_result(carry_out(runs, folder, Watch))
        return futures

    monkeypatch.setattr(ParallelRuns, "begun", begun)
    compared = imperfed.compare([HalfWay(share=0.2)], seeds=[0, 1], jobs=2, model=wide, alone=False, **few)
    alone = imperfed.run(HalfWay(share=0.2), model=wide, seed=1, data_seed=1, **few)
    assert compared.lines[0].values[1] == alone.summary.headline
    assert asked == [2]
