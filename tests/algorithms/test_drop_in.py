"""A file put into the folder of algorithms is all that a new method takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import imperfed
from tests.support.terminal import surroundings

METHODS = ["dropped", "dropped-momentum"]

# What the command line and the contract suite of the copy make of the new file, in one process: starting takes long.
INSIDE = """
import json, sys
import pytest
from tests.support.terminal import QUICK, done, summary
told = {
    "list": done("list", "algorithms", "--json").out,
    "shown": done("list", "algorithms").out,
    "show": [done("show", name).out for name in METHODS],
    "runs": [summary(done("run", name, *QUICK, "--set", "weight=3", "--out", "runs").folder) for name in METHODS],
}
print(json.dumps(told))
sys.exit(pytest.main(["tests/contract", "-k", "dropped", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]))
"""


def copied(folder: Path) -> Path:
    """The package with the new file, and the tests as they are."""
    tests, stale = Path(__file__).parents[1], shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(imperfed.__file__).parent, folder / "imperfed", ignore=stale)
    shutil.copytree(tests, folder / "tests", ignore=stale)
    shutil.copy(tests / "support" / "dropped.py", folder / "imperfed" / "algorithms")
    return folder


def test_one_file_is_found_shown_run_and_held_to_the_contract(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy")
    ran = subprocess.run(
        [sys.executable, "-c", INSIDE.replace("METHODS", repr(METHODS))],
        cwd=copy,
        env=surroundings(PYTHONPATH=os.pathsep.join([str(copy)])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[0])
    listed = {entry["name"]: entry for entry in json.loads(told["list"])}
    assert [listed[name]["is"] for name in METHODS] == ["objective", "algorithm"]
    assert [listed[name]["learns from"] for name in METHODS] == ["candidates", "candidates"]
    assert "The probability that the prediction leaves the candidate set." in told["shown"]
    objective, algorithm = told["show"]
    assert "p         softmax of the logits   never" in objective
    assert "weight = 1.0    # lambda, Eq. 1" in objective
    assert "beta = 0.25    # beta, Eq. 2" in algorithm
    assert str(copy / "imperfed" / "algorithms" / "dropped.py") in algorithm
    assert [(run["method"], run["objective"], run["rounds"]) for run in told["runs"]] == [
        ("dropped", "dropped", 2),
        ("dropped-momentum", "dropped", 2),
    ]
    held = re.search(r"(\d+) passed", ran.stdout)
    assert held, ran.stdout
    assert int(held[1]) >= 2 * 15  # the clauses of the contract, for either
    assert "failed" not in ran.stdout.splitlines()[-1]
    assert "skipped" not in ran.stdout
