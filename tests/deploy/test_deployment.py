"""What lies in `deploy/` can be read by those it is for, and calls commands that exist with the words they take."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from imperfed.cli.app import app

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXAMPLES = {
    "RUN": "first",
    "METHOD": "fedpsl --rounds 20 --set lr=0.01",
    "MORE": "--test other.csv",
    "DATA": "rows.csv",
    "COORDINATOR": "fed.example.org:8443",
    "SITE": "aachen",
}
"""Values of the variables in the command lines."""
ONCE = "serve-or-resume"


def filled(text: str) -> list[str]:
    """The words of a command line with examples for its variables."""
    return shlex.split(re.sub(r"\$\{?(\w+)(?::-([^}]*))?\}?", lambda found: EXAMPLES[found[1]], text))


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def jobs() -> list[Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return [document for document in documents if document["kind"] == "Job"]


def container(job: Any) -> Any:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line, and where it is from."""
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=/opt/imperfed/bin/(.*)$", unit.read_text(), re.M)
        yield unit.name, filled(line)
    for name, service in compose()["services"].items():
        yield f"compose {name}", [*service.get("entrypoint", ["imperfed"]), *filled(service["command"])]
    for job in jobs():
        one = container(job)
        yield f"kubernetes {one['name']}", [*one["command"], *one["args"]]


@pytest.mark.parametrize(
    ("place", "words"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_commands_take_the_words_they_are_given(place: str, words: list[str]) -> None:
    program, *rest = words
    assert program in (ONCE, "imperfed"), place
    if program == ONCE:
        rest = ["serve", *rest[1:], "--out", rest[0]]
    name, *own = rest
    known = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    given = known.make_context(name, list(own)).params
    assert ("--keys", str(given["keys"])) in pairwise(own)
    if name == "join":
        assert given["policy"] is not None  # nobody is there to answer a question


def test_the_units_are_sound(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze is installed, which could read the units")
    for unit in UNITS:
        text = re.sub(r"^(User|Group)=.*\n", "", unit.read_text(), flags=re.M)  # whom only sysusers makes
        (tmp_path / unit.name).write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", text))
    paths = [str(tmp_path / unit.name) for unit in UNITS]
    said = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    ours = [line for line in (said.stdout + said.stderr).splitlines() if "imperfed-" in line]
    assert (said.returncode, ours) == (0, [])
    rated = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", *paths]  # of 100: the lower the safer
    assert subprocess.run(rated, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_units_variables_are_in_the_files_beside_them(unit: Path) -> None:
    text = unit.read_text()
    (name,) = re.findall(r"^EnvironmentFile=/etc/imperfed/(.*)$", text, re.M)
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    given = set(re.findall(r"^(\w+)=", (DEPLOY / "systemd" / name).read_text(), re.M))
    assert given == set(re.findall(r"\$\{?(\w+)", line))


def test_containers_have_no_more_rights_than_they_need() -> None:
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert all(":ro" in mount or mount.split(":")[0] in compose()["volumes"] for mount in service["volumes"])
    for job in jobs():
        pod, own = job["spec"]["template"]["spec"], container(job)["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
        assert {mount["name"] for mount in container(job)["volumeMounts"]} == {
            volume["name"] for volume in pod["volumes"]
        }
    assert re.search(r"^USER 10001", (DEPLOY / "Containerfile").read_text(), re.M)


def test_a_second_start_goes_on_with_the_run_that_was_begun(tmp_path: Path) -> None:
    echo = tmp_path / "imperfed"
    echo.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    echo.chmod(0o755)
    runs = tmp_path / "the runs"

    def started() -> list[str]:
        words = [DEPLOY / ONCE, runs, "federation.toml", "fedavg", "--set", "lr=1"]
        path = f"{tmp_path}:{os.environ['PATH']}"
        said = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=True)
        return said.stdout.splitlines()

    assert started() == ["serve", "federation.toml", "fedavg", "--set", "lr=1", "--out", str(runs)]
    begun = runs / "fedavg-data-1"
    begun.mkdir(parents=True)
    assert started()[0] == "serve"
    (begun / "serve.json").touch()
    assert started() == ["resume", str(begun)]
