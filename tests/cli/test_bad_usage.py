"""A wrong name, setting or file: one message, exit code 2, nothing written."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch

from tests.support.terminal import FLIP, QUICK, Said, done, imperfed

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


def refused(said: Said, out: Path, *parts: str, code: int = 2) -> None:
    assert said.code == code, said.err
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1, said.err
    for part in parts:
        assert part in said.err
    assert not out.exists()


def test_data_in_the_place_of_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wards").mkdir()
    (tmp_path / "wards" / "federation.toml").write_text('name = "wards"')
    for name in ("wards", "wards/federation.toml"):
        said = imperfed("run", name, "--out", "runs")
        refused(said, tmp_path / "runs", f"{name}: data, and no method; ", f"imperfed run --data {name}")
    (tmp_path / "auto").mkdir()
    refused(imperfed("run", "auto", "--data", "nowhere", "--out", "runs"), tmp_path / "runs", "dataset 'nowhere'")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["fedavgg"], ["algorithm 'fedavgg'", "Did you mean 'fedavg'"]),
        (["fedavg+ccc"], ["objective 'ccc'", "Did you mean 'cc'"]),
        (["fedavg", "--set", "objective=prodem"], ["objective 'prodem'", "Did you mean 'proden'"]),
        (["fedavg+cc", "--set", "objective=lw"], ["fedavg+cc names an objective", "another: lw"]),
        (["cc+lw"], ["'cc' is already an objective", "'lw'"]),
        (["cc", "--data", "digit"], ["dataset 'digit'", "Did you mean 'digits'"]),
        (["cc", "--data", "."], ["one file ending in .npz or .mat"]),
        (["cc", "--model", "mlpp", *FLIP], ["model 'mlpp'", "Did you mean 'mlp'"]),
        (["cc", "--model", "lenet5", *FLIP], ["lenet5", "(1, 8, 8)", "Models that take it"]),
        (["cc", "--model", "no_such_module:net", *FLIP], ["cannot import 'no_such_module'"]),
        (["cc", "--set", "partition=dirichlett", *FLIP], ["partition 'dirichlett'", "Did you mean 'dirichlet'"]),
        (["cc", "--set", "labels.candidates=flipp"], ["'flipp'", "Did you mean 'flip'"]),
        (["cc", "--set", "stepz=3"], ["setting 'stepz'", "Did you mean 'steps'"]),
        (["cc", "--set", "learning_rate=3"], ["setting 'learning_rate'", "Did you mean 'lr'?"]),
        (["cc", "--set", "local.batch_size=3"], ["setting 'local.batch_size'", "Did you mean 'local.batch'"]),
        (["cc", "--set", "local.stepz=3"], ["setting 'local.stepz'", "Did you mean 'local.steps'"]),
        (["lw", "--set", "beta=0.3"], ["'beta' could be", "partition.beta", "objective.beta"]),
        (["pfedmo", *FLIP], ["pfedmo needs labelled rows at the server", "split.trusted"]),
        (
            ["fednag", "--set", "public_weight=0.2", *FLIP],
            ["fednag needs labelled rows at the server", "split.trusted"],
        ),
        (["cc", "--set", "steps"], ["written as key=value", "'steps'"]),
        (["cc", "--set", "steps=1.5"], ["local.steps", "a whole number", "'1.5'"]),
        (["cc", "--set", "steps=inf"], ["local.steps", "a whole number", "'inf'"]),
        (["cc", "--set", "steps=0"], ["local.steps", "above 0"]),
        (["cc", "--rounds", "0"], ["rounds.rounds", "above 0"]),
        (["cc", "--set", "lr=fast"], ["local.lr", "a number", "'fast'"]),
        (["cc", "--set", "lr=nan"], ["local.lr", "a number", "'nan'"]),
        (["cc", "--set", "momentum=-1"], ["local.momentum", "0 or more"]),
        (["cc", "--set", "participation=1.5"], ["participation", "at most 1"]),
        (["cc", "--set", "on_failure=cry"], ["rounds.on_failure 'cry'", "retry"]),
        (["cc", "--set", "test=1", *FLIP], ["test", "at least 0 and below 1"]),
        (["cc", "--set", "sites=0", *FLIP], ["sites must be at least 1"]),
        (["cc", "--set", "data_seed=-1"], ["data_seed", "negative"]),
        (["pfedpll", "--set", "kl=perhaps"], ["method.kl", "true or false", "'perhaps'"]),
        (["lw", "--set", "psi=tanh"], ["psi", "'tanh'", "sigmoid"]),
        (
            ["cc", "--set", "partition=quantity", "--set", "sizes=1,x"],
            ["partition.sizes", "whole numbers, such as 1,2,3", "'1,x'"],
        ),
        (["cc", "--set", "partition=quantity", "--set", "sizes=9,0,1,1", *FLIP], ["sizes", "positive", "[9, 0, 1, 1]"]),
        pytest.param(["cc", "--device", "cuda"], ["no GPU that torch can use", "cpu"], marks=WITHOUT_GPU),
        pytest.param(["cc", "--set", "precision=bf16"], ["settings for a GPU", "CPU"], marks=WITHOUT_GPU),
        (["cc", "--set", "precision=half"], ["precision 'half'", "bf16"]),
        (["cc", "--device", "gpu7"], ["device 'gpu7'", "cpu"]),
        (["cc", "--set", "labels.kind=exact"], ["'cc' learns from candidates", "exact", "cross-entropy"]),
        (["cross-entropy", "--set", "labels.kind=candidates", *FLIP], ["learns from exact", "candidates", "proden"]),
    ],
    ids=" ".join,
)
def test_a_run_that_cannot_be(words: list[str], parts: list[str], tmp_path: Path) -> None:
    refused(imperfed("run", *words, "--out", tmp_path / "out"), tmp_path / "out", *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["cc", "--seeds", "0,x"], ["--seeds takes comma-separated whole numbers", "'0,x'"]),
        (["cc", "--seeds", ""], ["--seeds takes comma-separated whole numbers"]),
        ([","], ["no method was named"]),
        (["cc,fedavgg"], ["Did you mean 'fedavg'"]),
        (["cc", "--set", "run.seed=3"], ["run.seed", "varies between the runs of a comparison"]),
        (["cc", "--set", "method=lw"], ["method", "varies between the runs of a comparison"]),
        (["cc", "--set", "test=0"], ["test above 0"]),
    ],
    ids=" ".join,
)
def test_a_comparison_that_cannot_be(words: list[str], parts: list[str], tmp_path: Path) -> None:
    refused(imperfed("compare", *words, "--out", tmp_path / "out"), tmp_path / "out", *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[run\nmethod = 1", ["not a TOML file", "line 1"]),
        ("method = 'cc'", ["'method' must be a section", "[method]"]),
        ("[local]\nstepz = 3", ["setting in [local] 'stepz'", "Did you mean 'steps'"]),
        ("[run]\nmethid = 'cc'", ["setting in [run] 'methid'", "Did you mean 'method'"]),
        ("[locall]\nsteps = 3", ["section 'locall'", "Did you mean 'local'"]),
        ("[local]\nsteps = 'many'", ["local.steps", "a whole number", "'many'"]),
        ("[local]\nsteps = true", ["local.steps", "a whole number", "True"]),
        ("[local]\nlr = [1]", ["local.lr", "a number", "[1]"]),
        ("[local]\nlr = inf", ["local.lr", "a number", "inf"]),
        ("[run]\ndevice = 5", ["run.device", "text", "5"]),
        (
            "[split]\npartition = 'quantity'\n[partition]\nsizes = [1.5, 2]",
            ["partition.sizes", "whole numbers", "[1.5, 2]"],
        ),
        ("[split]\npartition = 'quantity'\n[partition]\nsizes = 3", ["partition.sizes", "whole numbers", "3"]),
    ],
)
def test_a_broken_experiment_file(text: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    refused(imperfed("run", path, "--out", tmp_path / "out"), tmp_path / "out", *parts)


def test_an_experiment_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    path, out = tmp_path / "mine.toml", tmp_path / "out"
    refused(imperfed("run", path, "--out", out), out, str(path), "No such file")
    path.write_bytes(b"\xff\xfe")
    refused(imperfed("run", path, "--out", out), out, str(path), "not a TOML file")


def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    """Stands in for a folder without permission, which the administrator's account would write to all the same."""
    path = tmp_path / "out"
    path.write_text("mine")
    for out in (path, path / "below"):
        said = imperfed("run", "cc", *QUICK, "--workers", 2, "--out", out)
        assert said.code == 2
        assert not multiprocessing.active_children()
        assert said.err.startswith(f"error: cannot write to {out} (Not a directory)")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("verb", ["resume", "evaluate", "report"])
def test_a_folder_that_is_no_run(verb: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        said = imperfed(verb, path)
        assert said.code == 2
        assert said.err == f"error: {path} is not a run's folder: it has no config.toml\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["list", "algorithm"], ["list 'algorithm'", "Did you mean 'algorithms'"]),
        (["show", "pfedpl"], ["name 'pfedpl'", "Did you mean 'pfedpll'"]),
    ],
)
def test_a_page_of_the_catalogue_that_is_not_there(words: list[str], parts: list[str], tmp_path: Path) -> None:
    refused(imperfed(*words), tmp_path / "out", *parts)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["fedavgg"], "imperfed list"),
        (["fedavg", "--data", "digit"], "imperfed list datasets"),
        (["fedavg", "--model", "mlpp"], "imperfed list models (your own: package.module:function)"),
        (["fedprox", "--set", "stepz=3"], "imperfed show fedprox"),
        (["pfedpll", "--set", "stepz=3"], "imperfed show pfedpll"),  # it has its own objective
        (["fedprox+cc", "--set", "stepz=3"], "imperfed show fedprox and imperfed show cc"),
        (["cc", "--set", "stepz=3"], "imperfed show fedavg and imperfed show cc"),
    ],
    ids=" ".join,
)
def test_a_long_choice_says_what_lists_it(words: list[str], command: str, tmp_path: Path) -> None:
    said = imperfed("run", *words, *FLIP, "--out", tmp_path / "out")
    refused(said, tmp_path / "out", "Did you mean")
    assert said.err.endswith(f"List all with: {command}\n")
    assert "Known" not in said.err


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("[run]\nmethid = 'cc'", "imperfed schema"),
        ("[locall]\nsteps = 3", "imperfed schema"),
        ("[rounds]\nround = 3", "imperfed show pfedpll"),
        ("[run]\ndefence = 'fairfedpapl'\n[defence]\ntargt = 'a'", "imperfed show fairfedpapl"),
    ],
)
def test_a_file_with_an_unknown_key_says_what_lists_them(text: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert imperfed("run", path).err.endswith(f"List all with: {command}\n")


def test_the_command_that_lists_settings_lists_them_all() -> None:
    shown = done("show", "fedprox").out
    for key in ("mu", "local.steps", "rounds.rounds", "run.precision", "fairness.target"):
        assert f"\n{key} = " in shown
    assert "\nrun.method = 'fedprox'" in shown
    assert "\nsplit.partition = 'dirichlet'" in shown  # by name


def test_a_word_that_the_option_parser_refuses() -> None:
    for words in (["run", "cc", "--rounds", "many"], ["trian"], ["run", "cc", "--roundz", "3"]):
        said = imperfed(*words)
        assert said.code == 2
        assert "Usage:" in said.err
        assert "Traceback" not in said.err
