"""`imperfed new method NAME`: a small project of your own, whose method imperfed finds once it is installed."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from imperfed.core.errors import UsageError

app = typer.Typer(help="Begin a project of your own.", no_args_is_help=True)

PYPROJECT = """\
[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
description = "A federated method for imperfed"
requires-python = ">=3.11"
dependencies = ["imperfed"]

[project.optional-dependencies]
dev = ["pytest>=8.3"]

[project.entry-points."imperfed.algorithms"]
$name = "$module:$Class"

[tool.setuptools]
py-modules = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

METHOD = '''\
"""$Class: say here which paper it is, and what was checked against it.

    symbol    where it lives         does it travel
    w         server["w"]            down and up, whole
    m         server["m"]            never
    n_k / n   Updates.by_size        n_k is the site's claim

Departs from the paper in: say here what, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import fraction
from imperfed.core.exchange import Updates


@dataclass(frozen=True)
class $Class(Algorithm):
    """The mean of the sites' models, continued in the direction of earlier rounds."""

    name: ClassVar[str] = "$name"
    beta: float = 0.5  # beta, Eq. 1: the share of the last direction that is kept

    def __post_init__(self) -> None:
        fraction("method", beta=self.beta)

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"m": torch.zeros_like(w)}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        mean = updates.average(updates.by_size())
        m = self.beta * server["m"] + mean["w"] - server["w"]  # Eq. 1: m <- beta m + (sum_k n_k/n w_k - w)
        return server | mean | {"m": m, "w": server["w"] + m}  # Eq. 2: w <- w + m
'''

TESTS = '''\
"""$Class against its equations, and against the contract of every method."""

import torch
from imperfed.core.exchange import Updates
from imperfed.testing import check

from $module import $Class


def test_the_equations_by_hand():
    server = {"w": torch.tensor([1.0]), "m": torch.tensor([2.0]), "buffers": torch.zeros(0)}
    answers = {"w": torch.tensor([[0.0], [2.0]]), "buffers": torch.zeros(2, 0)}
    updates = Updates((0, 1), torch.tensor([1, 3]), answers)
    new = $Class(beta=0.5).merge(server, updates, context=None)
    # The mean is (1 * 0 + 3 * 2) / 4 = 1.5.
    assert new["m"].item() == 1.5  # Eq. 1: 0.5 * 2 + 1.5 - 1
    assert new["w"].item() == 2.5  # Eq. 2: 1 + 1.5


def test_it_holds_to_the_contract():
    check($Class())
'''

README = """\
# $name

A federated method for imperfed, in `$module.py`. Change its hooks, its settings and its test to those of your method.

    pip install -e ".[dev]"
    pytest
    imperfed show $name
    imperfed run $name --set method.beta=0.7
    imperfed compare "$name, fedavg" --seeds 0,1,2
"""


@app.callback()
def new() -> None:
    """Begin a project of your own."""


@app.command()
def method(
    name: Annotated[str, typer.Argument(help="The method's name: small letters, digits and hyphens.")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the project's folder is created.")] = Path(),
) -> None:
    """Write an installable project with a method of its own that works, its tests and a README."""
    for path in write_project(name, out):
        typer.echo(path)


def write_project(name: str, out: Path) -> list[Path]:
    """Write a project of this name below `out`; refuse a name that is taken or cannot be a module."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise UsageError(f"a method's name has small letters, digits and hyphens, such as my-method; got {name!r}")
    folder, module = out / name, name.replace("-", "_")
    _refuse_taken(name, module, folder)
    words = {"name": name, "module": module, "Class": "".join(part.capitalize() for part in name.split("-"))}
    files = {
        "pyproject.toml": PYPROJECT,
        f"{module}.py": METHOD,
        f"tests/test_{module}.py": TESTS,
        "README.md": README,
    }
    (folder / "tests").mkdir(parents=True)
    for path, text in files.items():
        (folder / path).write_text(Template(text).substitute(words), encoding="utf-8")
    return [folder / path for path in files]


def _refuse_taken(name: str, module: str, folder: Path) -> None:
    """Refuse a name that a method, a module or a folder already has."""
    from importlib.util import find_spec

    from imperfed.algorithms import catalogue

    if name in catalogue():
        raise UsageError(f"there is a method named {name!r} already; choose another name")
    if find_spec(module) is not None:
        raise UsageError(f"there is a Python module named {module!r} already; choose another name")
    if folder.exists():
        raise UsageError(f"{folder} exists already; choose another name, or another folder with --out")
