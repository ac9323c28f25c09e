"""The import direction holds in the package, and the script that checks it finds what breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "imports.py"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script that stands where it would in the repository at `root`."""
    copy = root / "tools" / "imports.py"
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(SCRIPT.read_text())
    return subprocess.run([sys.executable, str(copy)], capture_output=True, text=True, check=False)


def test_the_package_is_in_order() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "imports: in order\n")


def plant(root: Path, file: str, code: str) -> None:
    path = root / "imperfed" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)


@pytest.mark.parametrize(
    ("file", "code", "target"),
    [
        ("algorithms/new.py", "import os\nfrom imperfed.engine.engine import Engine\n", "engine.engine.Engine"),
        ("defences/new.py", "\nfrom imperfed.algorithms.fedavg import FedAvg\n", "algorithms.fedavg.FedAvg"),
        ("attacks/new.py", "\nfrom ..data.federate import federate\n", "data.federate.federate"),
        ("algorithms/new.py", "\nfrom ..data.oracle import Oracle\n", "data.oracle.Oracle"),
        ("algorithms/__init__.py", "\nfrom .. import evaluation\n", "evaluation"),
        ("engine/engine.py", "\nimport imperfed.algorithms\n", "algorithms"),
        ("engine/engine.py", "def f():\n    from imperfed.data.sources import load\n", "data.sources.load"),
        ("engine/engine.py", "\nfrom imperfed import evaluation\n", "evaluation"),
        ("engine/site.py", "\nfrom imperfed.data import oracle\n", "data.oracle"),
        ("core/labels.py", "\nimport imperfed.engine.engine as rounds\n", "engine.engine"),
        ("nn/losses.py", "\nfrom imperfed.report import write\n", "report.write"),
        ("core/network.py", "\nfrom imperfed import cli\n", "cli"),
        ("report/html.py", "\nfrom imperfed.data.oracle import Oracle\n", "data.oracle.Oracle"),
        ("__init__.py", "\nfrom imperfed.data.oracle import Oracle\n", "data.oracle.Oracle"),
    ],
)
def test_a_planted_violation_is_named_with_its_line(tmp_path: Path, file: str, code: str, target: str) -> None:
    plant(tmp_path, file, code)
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(f"imperfed/{file}:2: imports imperfed.{target}: ")
    assert len(done.stdout.splitlines()) == 1


def test_what_is_allowed_passes(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "algorithms/new.py",
        "import torch\nfrom imperfed.core.algorithm import Algorithm\nfrom ..nn.losses import masked\n",
    )
    plant(tmp_path, "engine/new.py", "from imperfed.engine.site import train\nfrom . import state\n")
    plant(tmp_path, "data/new.py", "from imperfed.data.oracle import Oracle\nfrom imperfed.core import federation\n")
    plant(tmp_path, "evaluation/new.py", "from imperfed.data.oracle import Oracle\n")
    plant(tmp_path, "experiments/new.py", "from imperfed import algorithms, data, engine, evaluation\n")
    assert check(tmp_path).returncode == 0


def test_every_violation_has_its_line(tmp_path: Path) -> None:
    plant(tmp_path, "core/new.py", "from imperfed.engine import engine\nfrom imperfed.data import federate\n")
    plant(tmp_path, "engine/site.py", "from imperfed.data.oracle import Oracle\n")
    assert len(check(tmp_path).stdout.splitlines()) == 3


def test_modules_that_import_each_other_are_named_in_order(tmp_path: Path) -> None:
    plant(tmp_path, "core/a.py", "from imperfed.core.b import one\n")
    plant(tmp_path, "core/b.py", "from imperfed.core import c\n")
    plant(tmp_path, "core/c.py", "from .a import two\n")
    done = check(tmp_path)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.endswith("move what both need to a module of its own")
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        assert f"imperfed.core.{one} imports imperfed.core.{other}" in f"{line} {line}"


def test_an_import_inside_a_function_closes_no_circle(tmp_path: Path) -> None:
    plant(tmp_path, "core/a.py", "from imperfed.core.b import one\n")
    plant(tmp_path, "core/b.py", "def one():\n    from imperfed.core.a import two\n")
    plant(tmp_path, "core/__init__.py", "from imperfed.core.a import one\n")
    assert check(tmp_path).returncode == 0
