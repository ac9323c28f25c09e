"""Every object that a run cannot take meets one line that names the argument, and the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import imperfed
from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fedprox import FedProx
from imperfed.algorithms.mime import Mime
from imperfed.algorithms.pfedpll import PFedPLL
from imperfed.algorithms.positive_softmax import PositiveSoftmax
from imperfed.core.errors import ImperfedError
from imperfed.data.partitions.dirichlet import DirichletPartition
from tests.support.own_parts import HalfWay, Net, Tempered
from tests.support.terminal import write


class Undecorated(HalfWay):
    """Keeps a cache of its own."""

    name: ClassVar[str] = "undecorated"

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Any] = {}


@dataclass(frozen=True)
class Keeping(HalfWay):
    """Keeps something besides its settings."""

    name: ClassVar[str] = "keeping"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", [])


@dataclass(frozen=True)
class Tensors(HalfWay):
    """Has a setting that no file can hold."""

    name: ClassVar[str] = "tensors"
    start: Any = torch.zeros(2)  # noqa: RUF009


@dataclass(frozen=True, kw_only=True)
class Demanding(HalfWay):
    """Has a setting without a default."""

    name: ClassVar[str] = "demanding"
    beta: float


@dataclass(frozen=True)
class Nameless(imperfed.Algorithm):
    """Has no name."""


@dataclass(frozen=True)
class Unfinished(imperfed.Objective):
    """Has no loss."""

    name: ClassVar[str] = "unfinished"


class Stubborn(Net):
    """Refuses to be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot pickle a stream")


def integer() -> int:
    """Return no module."""
    return 3


Arguments = Callable[[], dict[str, Any]]
CALLS: list[tuple[Arguments, str]] = [
    (lambda: {"method": 3}, "method: expected the name of a method, package.module:Class, an instance or a class of "),
    (lambda: {"method": Net(3)}, "method: expected the name of a method, "),
    (lambda: {"method": dict}, "method: expected the name of a method, "),
    (lambda: {"method": None}, "method: expected the name of a method, "),
    (lambda: {"objective": FedAvg()}, "objective: expected the name of an objective, "),
    (lambda: {"defence": FedAvg}, "defence: expected the name of a defence, package.module:Class"),
    (lambda: {"partition": CC()}, "partition: expected the name of a partition"),
    (lambda: {"method": Undecorated()}, "method: Undecorated is no frozen dataclass; write @dataclass(frozen=True)"),
    (lambda: {"method": Keeping()}, "method: Keeping holds 'seen' besides its settings; make it a field"),
    (lambda: {"method": Tensors()}, "method: Tensors.start holds a value of type Tensor, which cannot be recorded"),
    (lambda: {"method": Demanding(beta=1.0)}, "method: Demanding() must work without arguments; give every setting"),
    (lambda: {"method": Nameless()}, "method: Nameless has no name; add a line such as name: ClassVar[str]"),
    (lambda: {"objective": Unfinished}, "objective: Unfinished does not define loss"),
    (lambda: {"method": FedProx(mu=0.1), "mu": 0.2}, "mu=...: a setting of the method, which is an object"),
    (
        lambda: {"method": FedProx(), "method.mu": 0.2},
        "method.mu=...: a setting of the method, which is an object",
    ),
    (
        lambda: {"objective": Tempered(), "heat": 2},
        "heat=...: a setting of the objective, which is an object",
    ),
    (
        lambda: {"partition": DirichletPartition(), "beta": 2},
        "beta=...: a setting of the partition, which is an object",
    ),
    (lambda: {"method": FedAvg(objective=CC()), "objective": "rc"}, "objective=...: FedAvg was made with an objective"),
    (lambda: {"method": PFedPLL(objective=None)}, "method: PFedPLL(objective=None) has no objective; leave it out"),
    (lambda: {"method": CC(), "objective": Tempered()}, "'cc' is already an objective and takes no second one"),
    (lambda: {"method": "fedavg+cc", "objective": Tempered()}, "fedavg+cc names an objective, but"),
    (lambda: {"method": Mime(form="papr")}, "unknown value of method.form 'papr'. Did you mean 'paper'? Known: accum"),
    (lambda: {"objective": PositiveSoftmax()}, "fedavg: its objective 'positive-softmax' learns from "),
    (lambda: {"model": 3}, "model: expected the name of a model, package.module:function, an nn.Module or a function"),
    (lambda: {"model": Net}, "model 'tests.support.own_parts:Net': the function failed; it is called with those of "),
    (lambda: {"model": Net(3), "hidden": 5}, "hidden=...: the model is an object here and takes no settings"),
    (lambda: {"model": nn.Linear(5, 3)}, "model (object of torch.nn.modules.linear:Linear): it cannot take a batch"),
    (
        lambda: {"model": nn.Sequential(Net(3), nn.Linear(3, 5))},
        "model (object of torch.nn.modules.container:Sequential",
    ),
    (lambda: {"model": integer}, "model 'tests.api.test_wrong_objects:integer': the function returned int; it must"),
    (
        lambda: {"model": lambda a, b: Net(3)},
        "model (object of tests.api.test_wrong_objects:<lambda>.<locals>.<lambda>): the ",
    ),
    (lambda: {"model": Stubborn(3)}, "model (object of tests.api.test_wrong_objects:Stubborn): it cannot be copied; "),
]


@pytest.mark.parametrize(("arguments", "message"), CALLS, ids=[message[:40] for _, message in CALLS])
def test_a_wrong_object_is_refused_in_one_line(arguments: Arguments, message: str, tmp_path: Path) -> None:
    few = {"data": str(write(tmp_path / "mine.npz")), "rounds": 1, "steps": 1, "workers": 1, "partition": "iid"}
    with pytest.raises(ImperfedError) as error:
        imperfed.run(**{"method": "fedavg", "out": tmp_path / "runs", **few, **arguments()})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_what_to_do_with_a_class_that_needs_arguments(tmp_path: Path) -> None:
    with pytest.raises(ImperfedError, match=r"if it needs other arguments, hand over an instance, Net\(...\).*'width'"):
        imperfed.run("cc", str(write(tmp_path / "mine.npz")), model=Net, partition="iid")


def test_a_network_with_another_number_of_outputs_says_both(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5))
    with pytest.raises(ImperfedError, match=r"output of shape \[2, 5\]; it must be a tensor of shape \[2, 3\]"):
        imperfed.run("cc", str(write(tmp_path / "mine.npz")), model=net, partition="iid")
