"""Methods of other distributions: found, run, and where they cannot be, said so by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imperfed.algorithms import catalogue, reference
from imperfed.attacks import attacks
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.core.registry import entry_points
from imperfed.data.partitions import partitions
from imperfed.data.sources import sources
from imperfed.experiments.resolving import resolve
from imperfed.models import models
from tests.support.far_away import by_pip
from tests.support.plugged import EXTRAS, distribution
from tests.support.terminal import QUICK, Said, done, imperfed, strict, surroundings

ROOT = Path(__file__).parents[2]

# All that a process with the plug-in installed does with it; starting takes long.
INSIDE = """
import json
from pathlib import Path
from imperfed.core.labels import Exact
from imperfed.experiments import experiment
from tests.support.rehearsal import Alone, Apart, assert_same, raw, scaled, settled
from tests.support.terminal import QUICK, done
if __name__ == "__main__":
    experiment.write_report = lambda folder: None  # drawing it takes longer than the run
    config, data = settled("far-away", **{"method.beta": 0.25}), raw(Exact)
    assert_same(Alone(config, scaled(data)).go(), Apart(config, data, Path("sites")).start().go())
    print(json.dumps({
        "listed": done("list", "--json").out,
        "shown": done("show", "far-away").out,
        "run": str(done("run", "far-away", *QUICK, "--set", "method.beta=0.25", "--out", "runs").folder),
        "compared": done(
            "compare", "far-away", *QUICK, "--seeds", "0,1", "--jobs", "2", "--no-alone", "--out", "compared"
        ).out,
    }))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the project that `imperfed new` writes."""
    return by_pip(tmp_path_factory.mktemp("plug-in"))


@pytest.fixture(scope="module")
def outcome(installed: Path) -> dict[str, Any]:
    """What a process with the plug-in said of it."""
    script = installed.parent / "inside.py"
    script.write_text(INSIDE)
    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=installed.parent,
        env=surroundings(PYTHONPATH=os.pathsep.join([str(ROOT), str(installed)])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said | {"run": installed.parent / said["run"]}


def test_an_installed_method_is_listed_shown_run_and_compared(outcome: dict[str, Any], installed: Path) -> None:
    (entry,) = (entry for entry in json.loads(outcome["listed"]) if entry["name"] == "far-away")
    assert entry["is"] == "algorithm"
    assert str(installed / "far_away.py") in outcome["shown"]
    assert "beta = 0.5    # beta, Eq. 1" in outcome["shown"]
    assert "far-away: The mean of the sites' models" in outcome["compared"]
    assert "seed 1: far-away" in outcome["compared"] or "2 seeds" in outcome["compared"]


def test_its_run_records_where_it_comes_from(outcome: dict[str, Any]) -> None:
    env = strict((outcome["run"] / "env.json").read_text())
    assert env["plug-ins"] == [{"path": "far_away:FarAway", "distribution": "far-away", "version": "0.1.0"}]
    assert 'method = "far-away"' in (outcome["run"] / "config.toml").read_text()


@pytest.mark.parametrize("command", ["resume", "report", "evaluate"])
def test_where_it_is_missing_a_run_says_what_it_needs(command: str, outcome: dict[str, Any], tmp_path: Path) -> None:
    run = shutil.copytree(outcome["run"], tmp_path / "run")
    if command == "resume":
        assert "this run has already ended" in done("resume", run).out
        (run / "summary.json").unlink()
    said = imperfed(command, run)
    assert said.code == 2
    assert "needs far_away:FarAway of far-away 0.1.0, which cannot be imported here: No module named" in said.err
    assert said.err.endswith("; install it\n")
    assert "unknown algorithm" not in said.err


def forget() -> None:
    """Forget what was discovered."""
    for known in (entry_points, catalogue, attacks, partitions, sources, models):
        known.cache_clear()


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path for distributions made by hand."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    forget()
    yield folder
    for name in ("extras", "mishap", "other"):
        sys.modules.pop(name, None)
    monkeypatch.undo()
    forget()


def run(*words: object) -> Said:
    """A small run."""
    return imperfed("run", *words, "--rounds", "1", "--set", "steps=2", "--workers", "1", "--set", "candidates=flip")


def test_partitions_models_and_datasets_of_plug_ins(plugged: Path, no_page: None) -> None:
    distribution(
        plugged,
        "extras",
        EXTRAS,
        partitions={"turns": "extras:Turns"},
        models={"tiny": "extras:tiny"},
        datasets={"points": "extras:POINTS"},
    )
    assert "Rows in turns." in done("list", "partitions").out
    assert "One linear layer, flattened." in done("show", "tiny").out
    said = run("cc", "--data", "points", "--model", "tiny", "--set", "partition=turns", "--set", "sites=2")
    assert said.code == 0, said.err
    env = strict((said.folder / "env.json").read_text())
    assert [plugin["path"] for plugin in env["plug-ins"]] == ["extras:Turns", "extras:tiny", "extras:POINTS"]
    assert {plugin["version"] for plugin in env["plug-ins"]} == {"1.2"}


def test_a_broken_plug_in_breaks_nothing_else(plugged: Path) -> None:
    distribution(plugged, "mishap", "1 / 0\n", algorithms={"mishap": "mishap:Method"})
    said = imperfed("list", "algorithms")
    assert said.code == 0
    assert "fedavg" in said.out
    assert said.err.count("mishap:Method of mishap 1.2") == 1
    assert "ZeroDivisionError: division by zero" in said.err
    entries = {entry["name"]: entry for entry in strict(done("list", "--json").out)}
    assert entries["mishap"].keys() == {"name", "unusable"}
    assert "ZeroDivisionError: division by zero" in entries["mishap"]["unusable"]
    for words in (("show", "mishap"), ("run", "mishap"), ("run", "fedavg+mishap")):
        said = imperfed(*words)
        assert said.code == 2
        assert said.err.count("\n") == 1
        assert "plug-in 'mishap' (mishap:Method of mishap 1.2) cannot be used" in said.err
    assert resolve(words={"method": "fedavg"}).run.method == "fedavg"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"algorithms": {"unfinished": "extras:Unfinished"}}, "must be made by Unfinished.*beta is missing"),
        ({"algorithms": {"turns": "extras:Turns"}}, "unknown Algorithm in module 'extras' 'Turns'"),
        ({"algorithms": {"mine": "extras:Own"}}, "its class is named 'own'"),
        ({"algorithms": {"none": "extras:None"}}, "unknown Algorithm in module 'extras' 'None'"),
    ],
)
def test_a_plug_in_that_is_no_method_is_refused(plugged: Path, entries: dict[str, dict[str, str]], reason: str) -> None:
    distribution(plugged, "extras", EXTRAS, **entries)
    (name,) = entries["algorithms"]
    with pytest.raises(UsageError, match=reason):
        resolve(words={"method": name})


def test_built_in_names_are_refused_with_both_origins(plugged: Path) -> None:
    distribution(plugged, "extras", EXTRAS, algorithms={"fedavg": "extras:Own"}, datasets={"digits": "extras:POINTS"})
    assert catalogue()["fedavg"].__module__ == "imperfed.algorithms.fedavg"
    assert (
        "warning: plug-in 'fedavg' (extras:Own of extras 1.2) is not used: imperfed itself has a 'fedavg'"
        in imperfed("list").err
    )
    named = [entry for entry in strict(done("list", "--json").out) if entry["name"] == "fedavg"]
    assert ["unusable" in entry for entry in named] == [True, False]
    assert sources()["digits"].title != "Three points"


def test_defaults_stay_those_of_imperfed(plugged: Path) -> None:
    distribution(plugged, "extras", EXTRAS, objectives={"aaa": "extras:Ahead"})
    assert "aaa" in catalogue()
    assert reference(Exact).name == "cross-entropy"


def test_two_plug_ins_of_one_name_are_both_refused(plugged: Path) -> None:
    for name in ("extras", "other"):
        distribution(plugged, name, EXTRAS, algorithms={"own": f"{name}:Own"})
    with pytest.raises(UsageError, match=r"extras:Own of extras 1\.2.* and .*other:Own of other 1\.2.*same name"):
        resolve(words={"method": "own"})


def test_import_paths(plugged: Path, no_page: None) -> None:
    (plugged / "extras.py").write_text(EXTRAS)
    said = run("extras:Own", "--set", "partition=extras:Turns")
    assert said.code == 0, said.err
    config = (said.folder / "config.toml").read_text()
    assert 'method = "extras:Own"' in config
    assert 'partition = "extras:Turns"' in config
    assert ":" not in said.folder.name
    assert strict((said.folder / "env.json").read_text())["plug-ins"] == [
        {"path": "extras:Own"},
        {"path": "extras:Turns"},
    ]
    assert imperfed("evaluate", said.folder).code == 0
    (plugged / "extras.py").unlink()
    sys.modules.pop("extras")
    assert "needs extras:Own, which cannot be imported here: No module" in imperfed("evaluate", said.folder).err


def test_a_class_by_its_import_path_has_a_page(plugged: Path) -> None:
    (plugged / "extras.py").write_text(EXTRAS)
    page = strict(done("show", "extras:Own", "--json").out)
    assert (page["name"], page["about"]) == ("own", "Plain averaging by another name.")
    assert page["learns from"] == "any kind"
    assert "run.method = 'extras:Own'" in page["settings of every run"]
    assert strict(done("show", "extras:Turns", "--json").out)["source"] == str(plugged / "extras.py")
    assert "unknown" in imperfed("show", "extras:Owm").err
    assert "cannot import 'nowhere'" in imperfed("show", "nowhere:Own").err


def test_an_objective_and_a_comparison_by_import_path(plugged: Path, tmp_path: Path, no_page: None) -> None:
    (tmp_path / "extras.py").write_text(EXTRAS)
    config = resolve(words={"method": "extras:Own+imperfed.algorithms.cc:CC"})
    assert config.run.objective == "imperfed.algorithms.cc:CC"
    assert str(tmp_path) in sys.path  # the processes of `--jobs` inherit it, and import the class again
    said = imperfed("compare", "extras:Own", "--no-alone", *QUICK)
    assert said.code == 0, said.err
    assert "extras:Own: Plain averaging by another name." in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "nowhere:Method"}, "algorithm 'nowhere:Method': cannot import 'nowhere'; run from the folder"),
        ({"method": "os.path:join"}, "module 'os.path' has no Algorithm or Objective"),
        ({"method": "fedavg", "repair": "extras:Own"}, "module 'extras' has no Repair"),
        ({"method": "extras:Owm"}, r"unknown Algorithm or Objective in module 'extras' 'Owm'. Did you mean 'Own'\?"),
    ],
)
def test_import_paths_that_lead_nowhere(plugged: Path, words: dict[str, str], message: str) -> None:
    (plugged / "extras.py").write_text(EXTRAS)
    with pytest.raises(UsageError, match=message):
        resolve(words=words)
