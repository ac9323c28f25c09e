"""Shell completion, called as a shell calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from imperfed.algorithms import catalogue
from imperfed.cli.catalogue_cache import read_catalogue
from imperfed.data.sources import sources
from tests.support.terminal import done, imperfed, surroundings

HEAVY = ("torch", "numpy", "rich")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of these tests, with the catalogue in it."""
    folder = tmp_path_factory.mktemp("cache")
    with patch.dict(os.environ, XDG_CACHE_HOME=str(folder)):
        read_catalogue()
        yield folder


def offered(*words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    said = imperfed(
        COMP_WORDS=" ".join(("imperfed", *words)), COMP_CWORD=str(len(words)), _IMPERFED_COMPLETE="complete_bash"
    )
    assert (said.code, said.err) == (0, "")
    return said.out.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["reprod"], ["reproduce"]),
        (["run", "fedpr"], ["fedprox"]),
        (["run", "fedavg+cro"], ["fedavg+cross-entropy"]),
        (["run", "fedavg+fedpr"], []),  # no objective
        (["compare", "fedavg,fedpr"], ["fedavg,fedprox"]),
        (["schema", "fedpr"], ["fedprox"]),
        (["serve", "federation.toml", "fedpr"], ["fedprox"]),
        (["run", "fedavg", "--data", "fashion"], ["fashion-mnist"]),
        (["run", "--model", "resnet1"], ["resnet10", "resnet18"]),
        (["reproduce", "pfedpll/t"], ["pfedpll/table-4.2"]),
        (["list", "data"], ["datasets"]),
        (["show", "dirich"], ["dirichlet"]),
        (["run", "fedprox", "--set", "mu"], ["mu="]),
        (["run", "fedprox", "-s", "method."], ["method.mu=", "method.aggregation="]),
        (["run", "fedavg", "-s", "mu"], []),  # a setting of FedProx
        (["run", "-s", "mu"], []),
        (["run", "-s", "momen"], ["momentum="]),
        (["compare", "fedprox,fedavg", "-s", "mu"], []),
        (["run", "pfedpll", "-s", "objective.lambda1"], ["objective.lambda1="]),
        (["run", "fedavg+lw", "-s", "psi"], ["psi="]),
        (["run", "fedavg", "-s", "rounds"], ["rounds=", "rounds.target="]),  # fairness has a target as well
        (["serve", "federation.toml", "fedprox", "-s", "mu"], ["mu="]),
    ],
    ids=" ".join,
)
def test_what_is_offered(words: list[str], names: list[str]) -> None:
    assert offered(*words) == names


def test_every_name_is_offered() -> None:
    assert set(offered("run", "")) == set(catalogue())
    assert set(offered("run", "fedavg", "--data", "")) == set(sources())
    for name in offered("show", ""):
        said = imperfed("show", name)
        assert said.code == 0 or "say which" in said.err


@pytest.mark.parametrize("words", ["run fedpr", "run fedprox -s mu"])
def test_the_shell_waits_for_nothing_heavy(words: str) -> None:
    code = (
        "import sys; sys.argv = ['imperfed']\n"
        "try:\n    from imperfed.__main__ import main; main()\n"
        f"finally: print(*(name for name in {HEAVY} if name in sys.modules))"
    )
    asked = {
        "COMP_WORDS": f"imperfed {words}",
        "COMP_CWORD": str(len(words.split())),
        "_IMPERFED_COMPLETE": "complete_bash",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=surroundings(**asked), check=True
    )
    offer, heavy = ran.stdout.split("\n")[:2]
    assert offer in ("fedprox", "mu=")
    assert heavy == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_have_scripts(shell: str) -> None:
    said = done("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert f"_IMPERFED_COMPLETE=complete_{shell}" in said.out
