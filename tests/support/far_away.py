"""The project that `imperfed new method far-away` writes, as an installer leaves it in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from imperfed.cli.new_project import write_project
from tests.support.plugged import distribution


def by_pip(folder: Path) -> Path:
    """Install the project with pip, from its source, without the network; it takes long, so do it once."""
    write_project("far-away", folder)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    target = folder / "site"
    subprocess.run([*pip, "--target", str(target), str(folder / "far-away")], check=True, capture_output=True)
    return target


def by_hand(folder: Path) -> Path:
    """Put down what pip would have put down."""
    write_project("far-away", folder)
    module = (folder / "far-away" / "far_away.py").read_text()
    return distribution(folder / "site", "far-away", module, algorithms={"far-away": "far_away:FarAway"})
