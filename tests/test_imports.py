"""The import direction holds in the package, and the script that checks it finds what breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
        ("algorithms/new.py", "import os\nfrom imperfed.engine.rounds import Engine\n", "engine.rounds.Engine"),
        ("defences/new.py", "\nfrom imperfed.algorithms.fedavg import FedAvg\n", "algorithms.fedavg.FedAvg"),
        ("attacks/new.py", "\nfrom ..data.federate import Scene\n", "data.federate.Scene"),
        ("algorithms/new.py", "\nfrom ..oracle import Oracle\n", "oracle.Oracle"),
        ("algorithms/__init__.py", "\nfrom .. import evaluate\n", "evaluate"),
        ("engine/rounds.py", "\nimport imperfed.algorithms\n", "algorithms"),
        ("engine/rounds.py", "def f():\n    from imperfed.data.sources import load\n", "data.sources.load"),
        ("engine/rounds.py", "\nfrom imperfed import evaluate\n", "evaluate"),
        ("engine/site.py", "\nfrom imperfed import core, oracle\n", "oracle"),
        ("core.py", "\nimport imperfed.engine.rounds as rounds\n", "engine.rounds"),
        ("losses.py", "\nfrom imperfed.report import write\n", "report.write"),
        ("network.py", "\nfrom imperfed import cli\n", "cli"),
        ("report/html.py", "\nfrom imperfed.oracle import Oracle\n", "oracle.Oracle"),
        ("__init__.py", "\nfrom imperfed.oracle import Oracle\n", "oracle.Oracle"),
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
        "import torch\nfrom imperfed.core import Algorithm\nfrom ..losses import masked\n",
    )
    plant(tmp_path, "engine/new.py", "from imperfed.engine.site import train\nfrom . import state\n")
    plant(tmp_path, "data/new.py", "from imperfed.oracle import Oracle\nfrom imperfed.core import Federation\n")
    plant(tmp_path, "evaluate.py", "from imperfed.oracle import Oracle\n")
    plant(tmp_path, "experiment.py", "from imperfed import algorithms, data, engine, evaluate\n")
    assert check(tmp_path).returncode == 0


def test_every_violation_has_its_line(tmp_path: Path) -> None:
    plant(tmp_path, "core.py", "from imperfed.engine import rounds\nfrom imperfed.data import federate\n")
    plant(tmp_path, "engine/site.py", "from imperfed.oracle import Oracle\n")
    assert len(check(tmp_path).stdout.splitlines()) == 3
