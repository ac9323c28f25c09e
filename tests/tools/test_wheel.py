"""What people install: the wheel and the source archive hold everything, and the wheel runs from any folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
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


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of the wheel in a new environment, which takes only what it depends on from this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", str(built["wheel"])], env=elsewhere(), check=True, capture_output=True)
    return place / "bin" / "imperfed"


def elsewhere() -> dict[str, str]:
    """Return the environment of a process that knows nothing of the checkout and its data."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "IMPERFED_DATA")}


def used(command: Path, folder: Path, *words: object) -> str:
    """Return what a command of the installed wheel prints, in this folder, without a trace of the checkout."""
    line = [str(command), *map(str, words)]
    done = subprocess.run(line, cwd=folder, env=elsewhere(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_wheel_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    assert used(installed, tmp_path, "--version") == f"imperfed {imperfed.__version__}\n"
    source = used(installed, tmp_path, "show", "pfedpll").partition("\nsource\n")[2].splitlines()[0]
    assert Path(source).is_relative_to(installed.parents[1])


def test_the_installed_wheel_does_from_another_folder_what_the_first_page_says(installed: Path, tmp_path: Path) -> None:
    assert "report.html" in used(installed, tmp_path, "run", "--rounds", 1)  # the demo
    assert "Next:" in used(installed, tmp_path, "example", "labs")
    assert "exact labels" in used(installed, tmp_path, "inspect", "labs")
    assert "audit.html" in used(installed, tmp_path, "audit", "labs")
    used(installed, tmp_path, "run", "fedper", "--data", "labs", "--rounds", 1, "--workers", 1, "--out", "out")
    (folder,) = (tmp_path / "out").iterdir()
    site = ("--site", "hasty")
    used(installed, tmp_path, "predict", folder, "labs/test/hasty.parquet", *site)
    assert (tmp_path / "predictions.csv").read_text().startswith('"id","0","1",')
    for kind in ("onnx", "pt2", "safetensors"):
        used(installed, tmp_path, "export", folder, *site, "--format", kind, "--out", kind)
        assert {"MODEL_CARD.md", f"model.{kind}", "model.json"} == {p.name for p in (tmp_path / kind).iterdir()}


def test_what_an_index_shows_has_no_link_that_leads_nowhere(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        shown = wheel.read(name).decode()
    assert "\n# imperfed\n" in shown
    assert "Start to finish" in shown
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", shown)


def test_the_version_stands_in_one_place() -> None:
    assert f"version: {imperfed.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert distribution("imperfed").version == imperfed.__version__
