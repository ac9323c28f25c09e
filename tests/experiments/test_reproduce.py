"""A paper's table or figure made again: its runs, what is kept of them, and how far it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.experiments import parallel as processes
from imperfed.experiments import study as studies_of
from imperfed.experiments.parallel import paying
from imperfed.experiments.reproduction.drawing import draw, mean_curve
from imperfed.experiments.reproduction.standing import standing
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest, every, kept, results_file
from imperfed.experiments.resolving import resolve
from imperfed.experiments.study import Study, StudyColumn, StudyRow, studies
from imperfed.experiments.watch import Watch
from tests.support.terminal import TINY, done, imperfed

FILE = """
title = "Toy, table 1"
place = "nowhere"
draw = "curves"
reference = "cc"
measures = ["mean", "labels"]

[settings]
data = "digits"
labels.candidates = "flip"

[[rows]]
method = "cc"

[[rows]]
name = "rival"
method = "proden"

[columns.small]
paper = { cc = 50.0 }

[columns.slow]
settings = { "local.lr" = 0.001 }
"""
PROGRAM = """
title = "Toy, table 2"
place = "nowhere"
program = "python -m somewhere"

[[rows]]
method = "cc"
"""
NONE = """
title = "Toy, table 3"
place = "nowhere"
no_data = "lost long ago"

[[rows]]
method = "cc"
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of studies in place of those that come along; no reports, which take longer than the runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    folder = tmp_path / "studies"
    (folder / "toy").mkdir(parents=True)
    for number, text in enumerate((FILE, PROGRAM, NONE), 1):
        (folder / f"toy/table-{number}.toml").write_text(text)
    monkeypatch.setattr(studies_of, "FOLDER", folder)
    monkeypatch.setattr("imperfed.experiments.reproduction.study_cells.FOLDER", folder)
    studies.cache_clear()
    yield folder
    studies.cache_clear()


def results(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "reproduce/toy/table-1/results.json").read_text())["cells"]
    return found


def test_a_table_is_made_once_and_a_second_call_goes_on(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "toy/table-1", *TINY, "--out", out)
    done(*words, "--seeds", "0", "--only", "small")
    first = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert len(first) == 2
    said = done(*words, "--seeds", "0,1")
    assert len(list(out.rglob("summary.json"))) == 8
    assert {path: path.stat().st_mtime_ns for path in first} == first  # what had ended was not trained again
    cells = results(out)
    assert len(cells) == 8
    (row,) = [line for line in said.out.splitlines() if line.startswith("| `cc` |")]
    ours = [cell["figures"]["mean"] for cell in cells if (cell["row"], cell["column"]) == ("cc", "small")]
    assert f"| {50 * sum(ours):.2f} ± " in row
    assert "| 50.00 |" in row
    assert [line for line in said.out.splitlines() if line.startswith("| rival | `proden` |")]
    assert all(len(cell["curve"]) == 2 and cell["curve"][-1][1] == round(cell["figures"]["mean"], 5) for cell in cells)
    drawing = (out / "reproduce/toy/table-1/figure.svg").read_text()
    assert all(text in drawing for text in ("small", "slow", "rival"))
    (again,) = [line for line in done(*words, "--seeds", "0,1").out.splitlines() if line.startswith("| `cc` |")]
    assert again == row


def test_rows_that_are_named_run_alone_and_the_others_later(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "toy/table-1", *TINY, "--out", out, "--seeds", "0", "--only", "small")
    said = done(*words, "--rows", "rival")
    (alone,) = results(out)
    assert alone["row"] == "rival"
    assert "Not run yet: cc." in said.out
    done(*words)
    assert [cell["row"] for cell in results(out)] == ["cc", "rival"]
    assert results(out)[1] == alone


def test_what_cannot_be_reproduced_is_refused(toy: Path, tmp_path: Path) -> None:
    for words, part in (
        (("toy/table-4",), "toy/table-1"),
        (("toy/table-1", "--only", "smal"), "Did you mean 'small'"),
        (("toy/table-1", "--rows", "rivl"), "Did you mean 'rival'"),
        (("toy/table-2",), "made by a program of its own: python -m somewhere"),
        (("toy/table-3",), "there are no data; lost long ago"),
        ((), "--list, without a name, lists all"),
        (("toy/table-1", "--list"), "--list, without a name, lists all"),
    ):
        said = imperfed("reproduce", *words, "--out", tmp_path / "out")
        assert (said.code, part in said.err) == (2, True), said.err
    assert not (tmp_path / "out").exists()


# -- how far a table is ------------------------------------------------------------------------------------------------


def filled(study: Study, seeds: int, less: int = 0) -> StudyCells:
    """As many results as a study asks for, or fewer."""
    places = list(every(study, study.runnable))
    cells = [
        StudyCell(r.name, c.name, seed, digest(study, r, c), {"mean": 0.5}) for r, c in places for seed in range(seeds)
    ]
    return StudyCells(study.name).with_all(cells[: len(cells) - less])


def test_the_standing_follows_from_the_results(toy: Path) -> None:
    study = studies()["toy/table-1"]
    for seeds, less, status, count in (
        (0, 0, "not run", 0),
        (3, 0, "done", 12),
        (3, 1, "partly", 11),
        (2, 0, "partly", 8),
    ):
        filled(study, seeds, less).write(results_file(study.name))
        found = standing(study)
        assert (found.status, found.done, found.runs) == (status, count, 12)
    filled(study, 5).write(results_file(study.name))
    assert standing(study).done == 12  # more seeds of one row do not make up for another
    told = json.loads(done("reproduce", "--list", "--json").out)
    assert [(one["name"], one["status"]) for one in told] == [
        ("toy/table-1", "done"),
        ("toy/table-2", "not run"),
        ("toy/table-3", "no data"),
    ]
    assert told[2]["about"] == ["no data: lost long ago"]
    assert "1 done, 1 not run, 1 no data" in done("reproduce", "--list").out


def test_what_is_missing_needs_a_gpu_only_until_it_is_there(toy: Path) -> None:
    path = toy / "toy/table-1.toml"
    path.write_text(path.read_text().replace("[columns.slow]", '[columns.slow]\ngpu = "hours"'))
    studies.cache_clear()
    study = studies()["toy/table-1"]
    filled(study, 3, 1).write(results_file(study.name))
    assert (standing(study).about, standing(study).needs) == (
        ("slow: needs a GPU, and was not run yet: hours",),
        "a GPU",
    )
    filled(study, 3).write(results_file(study.name))
    assert (standing(study).about, standing(study).needs) == ((), "")


@pytest.mark.parametrize(
    ("small", "slow", "needs"),
    [
        ("", "hours", ""),  # the other column takes minutes
        ("hours", "hours", "hours on a CPU"),
        ("gpu", "hours", "hours on a CPU, and some a GPU"),
        ("gpu", "gpu", "a GPU"),
    ],
)
def test_hours_on_a_cpu_are_no_need_of_a_gpu(toy: Path, small: str, slow: str, needs: str) -> None:
    path, text = toy / "toy/table-1.toml", FILE
    for column, key in (("small", small), ("slow", slow)):
        text = text.replace(f"[columns.{column}]", f'[columns.{column}]\n{key} = "LeNet-5"') if key else text
    path.write_text(text)
    studies.cache_clear()
    found = standing(studies()["toy/table-1"])
    assert found.needs == needs
    assert ("slow: takes hours on a CPU, and was not run yet: LeNet-5" in found.about) == (slow == "hours" != small)
    assert ("small, slow: takes hours on a CPU, and was not run yet: LeNet-5" in found.about) == (small == "hours")
    filled(studies()["toy/table-1"], 3).write(results_file("toy/table-1"))
    assert (standing(studies()["toy/table-1"]).about, standing(studies()["toy/table-1"]).needs) == ((), "")
    path.write_text('hours = "all of it"\n' + FILE)
    studies.cache_clear()
    results_file("toy/table-1").unlink()
    found = standing(studies()["toy/table-1"])
    assert (found.needs, found.about) == ("hours on a CPU", ("takes hours on a CPU, and was not run yet: all of it",))


def test_results_count_only_for_the_settings_that_the_study_has(toy: Path) -> None:
    study = studies()["toy/table-1"]
    filled(study, 3).write(results_file(study.name))
    path = toy / "toy/table-1.toml"
    path.write_text(path.read_text().replace('"local.lr" = 0.001', '"local.lr" = 0.002'))
    studies.cache_clear()
    changed = standing(studies()["toy/table-1"])
    assert (changed.status, changed.done) == ("partly", 6)
    row, column = study.rows[0], study.columns[0]
    assert digest(study, row, column) == digest(study, row, column, {"device": "cuda", "rounds.workers": 3})
    assert digest(study, row, column) != digest(study, row, column, {"rounds": 2})


def test_what_stands_for_something_else_is_no_reproduction(toy: Path) -> None:
    path = toy / "toy/table-1.toml"
    path.write_text(path.read_text().replace("[columns.small]", '[columns.small]\nsubstitute = "smaller"'))
    studies.cache_clear()
    study = studies()["toy/table-1"]
    filled(study, 3).write(results_file(study.name))
    assert standing(study).status == "done"  # another column is what the paper has
    assert standing(study).about == ("small: substitute: smaller",)
    path.write_text('substitute = "digits for letters"\n' + path.read_text())
    studies.cache_clear()
    assert standing(studies()["toy/table-1"]).status == "substitute"
    path.write_text('lacks = "a rival"\n' + path.read_text())
    studies.cache_clear()
    assert standing(studies()["toy/table-1"]).status == "partly"  # a row of the paper is missing
    assert standing(studies()["toy/table-1"]).about[1] == "rows of the paper that are not here: a rival"


def test_a_damaged_file_of_results_is_said(toy: Path) -> None:
    study = studies()["toy/table-1"]
    results_file(study.name).write_text('{"cells": [')
    with pytest.raises(DataError, match=r"table-1\.json: cut short or damaged"):
        kept(study)


def test_curves_are_means_where_all_seeds_have_a_point() -> None:
    one = StudyCell("a", "b", 0, "", curve=[[1, 0.2], [2, 0.4]])
    other = StudyCell("a", "b", 1, "", curve=[[1, 0.4]])
    assert mean_curve([one, other]) == [(1, pytest.approx(0.3))]
    assert mean_curve([]) == []


def test_a_drawing_fills_a_page_and_its_legend_hides_nothing(tmp_path: Path) -> None:
    columns = tuple(StudyColumn(f"tau {number}") for number in range(4))

    def size(names: Sequence[str], over: int, axis: str = "tau") -> tuple[float, float, str]:
        rows = tuple(StudyRow(name, "cc") for name in names)
        study = Study("toy", {}, rows, columns[:over], draw="curves", axis=axis)
        cells = [
            StudyCell(r.name, c.name, 0, digest(study, r, c), {"mean": 0.5}, [[1, 0.2], [2, 0.5]])
            for r, c in every(study, study.columns)
        ]
        draw(study, StudyCells("toy").with_all(cells), study.columns, None, tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text()
        (width, height), *_ = re.findall(r'width="([\d.]+)pt" height="([\d.]+)pt"', text)
        return float(width), float(height), text

    three, four, alone = size(["one", "other"], 3), size(["one", "other"], 4), size(["one"], 3)
    assert four[0] < three[0]  # two panels in each of two lines
    assert four[1] == 2 * three[1]
    assert alone[0] < three[0]
    assert ">other<" in three[2]
    assert ">one<" not in alone[2]
    assert "fill: #ffffff" in alone[2]  # also on a dark page
    apart = size(["one", "other"], 3, axis="")  # such as two datasets, each with figures along its own axis
    assert apart[2].count("<text") > three[2].count("<text")


def test_the_studies_that_come_along_hold_only_results_that_they_ask_for() -> None:
    for study in studies().values():
        wanted = {(row.name, column.name, digest(study, row, column)) for row, column in every(study, study.runnable)}
        assert {(cell.row, cell.column, cell.made) for cell in kept(study).cells.values()} <= wanted, study.name


# -- processes ---------------------------------------------------------------------------------------------------------


def test_on_a_cpu_a_run_has_the_machine_to_itself() -> None:
    assert paying(resolve(words={"method": "cc", "data": "digits", "device": "cpu"})) == 1


@pytest.mark.parametrize(("memory", "jobs"), [(141e9, 3), (8e9, 1)])
def test_on_a_large_gpu_seeds_run_side_by_side(memory: float, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(total_memory=memory)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    assert paying(resolve(words={"method": "cc", "data": "digits", "device": "auto"})) == jobs


def test_that_data_are_prepared_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(processes, "load_data", lambda config: said.append("read"))
    monkeypatch.setattr(processes, "refuse_other_labels", lambda config, data: said.append("check"))
    monkeypatch.setattr(processes, "start", lambda *_: (None, {}))
    watch = Watch(prepare=lambda config: said.append("prepare"))
    processes.of_one_seed([resolve(words={"method": "cc", "data": "digits"})], tmp_path, lambda: watch)
    assert said == ["prepare", "read", "check", "prepare"]


def test_processes_begin_the_next_column_before_the_last_seed_of_one_has_ended(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[int] = []

    def outcomes(self: processes.ParallelRuns, configs: Any, folder: Path, watch: Any) -> Iterator[Any]:
        submitted.append(len(configs))
        return self.each(processes.of_one_seed, configs, folder, watch)

    monkeypatch.setattr(processes.ParallelRuns, "outcomes", outcomes)
    words = ("reproduce", "toy/table-1", *TINY, "--out", tmp_path / "out", "--seeds", "0,1", "--rows", "cc")
    done(*words)
    done(*words)  # nothing is missing
    assert submitted == [4, 0]  # two columns with two seeds each, all at once
    assert len(results(tmp_path / "out")) == 4
