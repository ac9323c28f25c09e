"""Every third-party package that imperfed imports is declared in pyproject.toml: in the core, or in the right extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}
"""Where the name that is installed is not the name that is imported."""
EXTRAS = {"flower": ["flower"], "core": ["dp"], "results": ["tensorboard", "mlflow"], "export": ["onnx"]}
"""The packages of imperfed that may import what extras install, and which extras."""


def imported(code: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the top-level name of every third-party import, also of those inside functions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        else:
            continue
        for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"imperfed"}:
            yield node.lineno, top


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", r)[0].lower().replace("_", "-") for r in requirements}


def undeclared(root: Path, project: dict[str, Any]) -> list[str]:
    """Return one line for every import of something that is not declared."""
    core, extras = declared(project["dependencies"]), project["optional-dependencies"]
    complaints = []
    for path in sorted((root / "imperfed").rglob("*.py")):
        package = path.relative_to(root / "imperfed").parts[0]
        known = core | declared([line for extra in EXTRAS.get(package, ()) for line in extras[extra]])
        for line, name in imported(path.read_text()):
            if DISTRIBUTIONS.get(name, name.replace("_", "-")).lower() not in known:
                complaints.append(f"{path.relative_to(root)}:{line}: {name}")
    return complaints


def the_project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_import_is_declared() -> None:
    assert undeclared(ROOT, the_project()) == []


@pytest.mark.parametrize(
    ("file", "code", "name"),
    [
        ("engine/a.py", "import os\nimport pandas.io\n", "pandas"),
        ("engine/a.py", "def f():\n    from requests import get\n", "requests"),
        ("engine/a.py", "import torch\nimport httpx\n", "httpx"),  # declared, but in an extra
        ("flower/a.py", "import httpx\nimport dp_accounting.rdp\n", "dp_accounting"),
    ],
)
def test_an_undeclared_import_is_named_with_its_line(tmp_path: Path, file: str, code: str, name: str) -> None:
    path = tmp_path / "imperfed" / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert undeclared(tmp_path, the_project()) == [f"imperfed/{file}:2: {name}"]


def test_what_trains_needs_no_reader_of_settings() -> None:
    """A machine that computes may have torch and little else."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('msgspec', 'tomli_w', 'typer', 'rich', 'matplotlib', 'flwr')))\n"
        "import imperfed.core.federation, imperfed.nn.optimizers, imperfed.models, imperfed.engine.engine\n"
        "from imperfed.algorithms import catalogue; catalogue()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_development_environment_is_pinned() -> None:
    pinned = declared((ROOT / "constraints.txt").read_text().splitlines())
    extras = the_project()["optional-dependencies"]
    installed = [line for extra in ("dp", "flower", "tensorboard", "dev") for line in extras[extra]]
    direct = declared([*the_project()["dependencies"], *installed])
    assert direct - pinned == {"imperfed"}
