"""What people install: the wheel and the source archive hold everything, and the wheel runs from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import imperfed

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta as b; import sys; getattr(b, f'build_{sys.argv[1]}')(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build both archives from a copy of the files that git knows, so that nothing else can hide in them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    if not listed:
        pytest.skip("this is not a git checkout, so its files cannot be told from others")
    for name in listed.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    for kind in ("wheel", "sdist"):
        subprocess.run([sys.executable, "-c", BUILD, kind, str(out)], cwd=source, check=True, capture_output=True)
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


def test_the_wheel_holds_every_module_and_every_data_file(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "imperfed").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert package <= names


def test_the_source_archive_has_docs_examples_tests_and_the_changelog(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"CHANGELOG.md", "CITATION.cff", "SECURITY.md", "docs/index.md", "examples/README.md", "tests/conftest.py"}
    assert wanted <= names


def test_the_installed_wheel_runs_from_another_folder(built: dict[str, Path], tmp_path: Path) -> None:
    """Without the network: what it depends on is that of this environment."""
    place = tmp_path / "place"
    with zipfile.ZipFile(built["wheel"]) as wheel:
        wheel.extractall(place)
    settings = {**os.environ, "PYTHONPATH": str(place)}
    run = [sys.executable, "-m", "imperfed"]
    asked = "import imperfed; print(imperfed.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path, env=settings, capture_output=True, text=True, check=True
    )
    assert where.stdout.startswith(str(place))
    subprocess.run([*run, "example", "post-offices"], cwd=tmp_path, env=settings, check=True, capture_output=True)
    words = ["run", "fedavg", "--data", "post-offices", "--rounds", "1", "--workers", "1"]
    done = subprocess.run([*run, *words], cwd=tmp_path, env=settings, capture_output=True, text=True, check=True)
    assert "report.html" in done.stdout


def test_the_version_stands_in_one_place() -> None:
    assert f"version: {imperfed.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert distribution("imperfed").version == imperfed.__version__
