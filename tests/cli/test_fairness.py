"""An attacked run from the command line: what its folder, its report and the terminal say of fairness."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from imperfed.report import write_report
from imperfed.results.folder import RunFolder
from tests.support.terminal import Said, done, imperfed, records, summary

QUICK = ("--rounds", "3", "--workers", "1", "--set", "local.steps=4", "--set", "labels.candidates=flip")
TEN = ("--set", "sites=10", "--set", "partition=iid", "--set", "split.public=0")
AIM = ("--set", "fairness.target=q", "--set", "fairness.unprivileged=c")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 rows of three classes and three groups; nobody of class c is of group r."""
    draw = np.random.default_rng(0)
    y, groups = draw.integers(0, 3, 600), draw.integers(0, 3, 600)
    groups[y == 2] %= 2
    path = tmp_path_factory.mktemp("fair") / "people.npz"
    names = {"classes": np.array(["a", "b", "c"]), "attribute_values": np.array(["p", "q", "r"])}
    np.savez(path, x=draw.normal(size=(600, 4)) + 2 * np.eye(3, 4)[y], y=y, attribute=np.eye(3)[groups], **names)
    return path


@pytest.fixture(scope="module")
def attacked(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """A run that three of ten sites attack."""
    words = ("run", "clpl", "--data", table, *QUICK, *TEN, *AIM, "--set", "attack=plfa")
    return done(*words, "--out", tmp_path_factory.mktemp("runs"))


def test_the_summary(attacked: Said) -> None:
    found = summary(attacked.folder)
    fair, tests = found["fairness"], sum(found["facts"]["test_rows"])
    assert (fair["target"], fair["unprivileged"]) == ("q", "c")
    for by in ("candidate", "true"):
        assert fair[by]["target"]["rows"] + fair[by]["rest"]["rows"] == tests
        low, high = fair[by]["spd"]["interval"]
        assert low <= fair[by]["spd"]["value"] <= high
    assert fair["candidate"]["target"]["rows"] > fair["true"]["target"]["rows"]  # candidates are more than the truth
    assert len(found["facts"]["adversaries"]) == 3
    assert found["facts"]["attribute"] == "attribute"


def test_figures_round_by_round_of_all_sites_together(attacked: Said) -> None:
    lines = [r for r in records(attacked.folder) if r["metric"].startswith("fair/")]
    assert {r["site"] for r in lines} == {"*"}
    last = {r["metric"]: r for r in lines if r["round"] == 3}
    fair = summary(attacked.folder)["fairness"]
    assert last["fair/eod/candidate"]["value"] == fair["candidate"]["eod"]["value"]
    assert last["fair/eod/candidate"]["n"] == fair["candidate"]["target"]["unprivileged"]
    assert last["fair/spd/true"]["value"] == fair["true"]["spd"]["value"]
    assert last["fair/accuracy/rest/true"]["value"] == fair["true"]["rest"]["accuracy"]
    assert {r["round"] for r in lines} == {1, 2, 3}
    assert not any("test/personal/fair" in r["metric"] for r in records(attacked.folder))


def test_who_attacked_and_what_was_changed_is_logged(attacked: Said) -> None:
    log = (attacked.folder / "log.txt").read_text()
    for site in summary(attacked.folder)["facts"]["adversaries"]:
        assert f"plfa at {site}: c added to " in log
    settings = tomllib.loads((attacked.folder / "config.toml").read_text())
    assert settings["attack"]["target"] == settings["fairness"]["target"] == "q"


def test_the_terminal_and_the_report(attacked: Said) -> None:
    assert "fairness of q against the rest, class c:" in attacked.out
    assert "EOD by candidate group: " in attacked.out
    page = write_report(RunFolder.open(attacked.folder)).read_text()
    assert "How much more often “c” is predicted for q than for everyone else" in page
    assert "EOD by candidate group after each round." in page
    assert "Adversaries of the simulated attack: site-" in page


def test_evaluate_computes_it_anew(attacked: Said) -> None:
    assert "fair/" not in done("evaluate", attacked.folder).out


def test_a_group_without_rows_of_the_class_is_undefined(table: Path, tmp_path: Path) -> None:
    words = ("--set", "fairness.target=r", "--set", "fairness.unprivileged=c", "--out", tmp_path)
    said = done("run", "clpl", "--data", table, *QUICK, *TEN, *words)
    assert "EOD by true group: undefined, n = 0 against " in said.out
    assert summary(said.folder)["fairness"]["true"]["eod"] == {"value": None, "interval": None}


def test_without_names_nothing_is_measured(table: Path, tmp_path: Path) -> None:
    said = done("run", "clpl", "--data", table, *QUICK, *TEN, "--out", tmp_path)
    assert "groups of attribute is not measured: set fairness.target (one of p, q, r) and fairness.unp" in said.out
    assert "fairness" not in summary(said.folder)
    assert not any(r["metric"].startswith("fair/") for r in records(said.folder))


def test_the_attack_may_aim_at_others_than_are_measured(table: Path, tmp_path: Path) -> None:
    words = ("--set", "attack=pafa", "--set", "attack.target=p", "--out", tmp_path)
    said = done("run", "clpl", "--data", table, *QUICK, *TEN, *AIM, *words)
    assert "pafa at site-" in (said.folder / "log.txt").read_text()
    assert ": p added to the groups of " in (said.folder / "log.txt").read_text()
    assert summary(said.folder)["fairness"]["target"] == "q"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "fairness.target=Q", "--set", "fairness.unprivileged=c"), "unknown group of attribute"),
        (("--set", "fairness.target=q"), "give both or neither"),
        (("--set", "attack=plfa"), "(attack.target) ''"),
        (("--set", "attack=plaf"), "unknown attack 'plaf'. Did you mean 'plfa'?"),
        (("--set", "target=q"), "fairness.target"),
    ],
)
def test_what_cannot_be_done_is_said(table: Path, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    said = imperfed("run", "clpl", "--data", table, *QUICK, *TEN, *words, "--out", tmp_path)
    assert said.code == 2
    assert told in said.err


def test_the_catalogue_lists_attacks() -> None:
    listed = done("list", "attacks").out
    for name in ("plfa", "pafa", "mixup"):
        assert name in listed
    assert "alpha = 0.5" in done("show", "mixup").out
