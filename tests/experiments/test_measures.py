"""What a study reports of a run: the right figure of the summary, and distances from the reference run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from imperfed.cli.typed_words import configs
from imperfed.core.errors import UsageError
from imperfed.evaluation.fairness import FairnessBetween, FairnessFigure, FairnessSummary, GroupSummary
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.reproduction.run_study import StudyRuns, leading_curve
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest
from imperfed.experiments.reproduction.study_table import markdown
from imperfed.experiments.study import studies
from imperfed.experiments.watch import Watch
from imperfed.results.folder import RunFolder
from imperfed.results.summary import ClassSummary, GlobalFigure, OverSites, Summary
from tests.support import made_run

GROUP = GroupSummary(10, 5, 0.5)


def changed(**fields: Any) -> Summary:
    return msgspec.structs.replace(Summary.from_json(json.dumps(made_run.summary())), **fields)


def fair() -> FairnessSummary:
    between = FairnessBetween(FairnessFigure(-0.25, None), FairnessFigure(0.5, None), GROUP, GROUP)
    return FairnessSummary("Asian", "High", between, None)


@pytest.mark.parametrize(
    ("name", "fields", "value", "shown"),
    [
        ("mean", {"personal": OverSites(0.5, 0.75, 0.25, 8)}, 0.5, "50.00"),
        ("worst", {"personal": OverSites(0.5, 0.75, 0.25, 8)}, 0.25, "25.00"),
        ("by rows", {"personal": OverSites(0.5, 0.75, 0.25, 8)}, 0.75, "0.750"),
        ("global", {"common": {"accuracy": GlobalFigure(0.125, 8), "p@1": GlobalFigure(0.5, 8)}}, 0.125, "12.50"),
        ("global:p@1", {"common": {"accuracy": GlobalFigure(0.125, 8), "p@1": GlobalFigure(0.5, 8)}}, 0.5, "50.00"),
        ("class:Nodule", {"by_class": (ClassSummary("Nodule", (), 1, 1, 0.625, None, None),)}, 0.625, "62.50"),
        ("eod", {"fairness": fair()}, -0.25, "-0.250"),
        ("spd", {"fairness": fair()}, 0.5, "0.500"),
        ("seconds per round", {"seconds": 9.0, "rounds": 4}, 2.25, "2.25"),
        ("rounds to target", {"target": TargetReached(0.9, "accuracy", 7, 1.0)}, 7, "7.0"),
        ("minutes to target", {"target": TargetReached(0.9, "accuracy", 7, 90.0)}, 1.5, "1.50"),
    ],
)
def test_a_measure_is_its_figure(name: str, fields: dict[str, Any], value: float, shown: str, tmp_path: Path) -> None:
    assert measure(name).of(changed(**fields), RunFolder(tmp_path)) == value
    assert measure(name).shown(value) == shown


def test_what_a_run_does_not_have_is_none(tmp_path: Path) -> None:
    without = changed(repair=None, fairness=None, target=None, common={}, by_class=(), labels=None)
    for name in (
        "global",
        "global:p@3",
        "class:X",
        "eod",
        "rand index",
        "rounds to target",
        "minutes to target",
        "labels",
        "kB up per site",
    ):
        assert measure(name).of(without, RunFolder(tmp_path)) is None
    with pytest.raises(UsageError, match="Did you mean 'worst'"):
        measure("wors")


def test_curves_and_bytes_are_read_from_the_metrics(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    for number in (1, 2):
        for site, value in (("a", 0.1), ("b", 0.3)):
            records.append({"round": number, "site": site, "metric": "test/personal/accuracy", "value": number * value})
        records.append({"round": number, "site": "*", "metric": "bytes/down", "value": 6000 * number})
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    run = RunFolder(tmp_path)
    assert leading_curve(run, "accuracy") == [[1, 0.2], [2, 0.4]]
    facts = msgspec.structs.replace(changed().facts, rows=(5, 5, 5))
    assert measure("kB down per site").of(changed(facts=facts), run) == 3000
    assert measure("kB down per site").shown(3000) == "3.0"
    records.append({"round": 2, "site": "*", "metric": "test/global/accuracy", "value": 0.9})
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert leading_curve(run, "accuracy") == [[2, 0.9]]  # the global model's, where there is one


def test_distances_are_those_from_the_reference_run_of_the_same_seed() -> None:
    study = studies()["fairness/table-5.2"]
    column, (clean, other) = study.columns[0], study.rows[:2]
    cells = StudyCells(study.name).with_all(
        StudyCell(row.name, column.name, seed, digest(study, row, column), {"spd": value, "delta spd": value})
        for row, seed, value in ((clean, 0, -0.1), (other, 0, 0.2), (clean, 1, 0.3), (other, 1, 0.1))
    )
    runs = StudyRuns(study, [column], [0, 1], {}, configs, Path("nowhere"), Watch)
    for seed in (0, 1):
        cells = runs._with_distances(cells, column, seed)
    found = {(cell.row, cell.seed): cell.figures["delta spd"] for cell in cells.cells.values()}
    assert found[clean.name, 0] == found[clean.name, 1] == 0
    assert found[other.name, 0] == pytest.approx(0.3)
    assert found[other.name, 1] == pytest.approx(0.2)
    line = next(one for one in markdown(study, cells, [column]).splitlines() if one.startswith("| no defence"))
    assert line.endswith("| 0.150 ± 0.071 | -0.005 | 0.250 ± 0.071 | 0.086 |")


def test_the_table_says_what_is_missing_and_what_diverged() -> None:
    study = replace(studies()["pfedpll/table-4.2"], measures=("mean",))
    lost, (first, second, third, fourth) = study.column("lost"), study.rows[:4]
    cells = StudyCells(study.name).with_all(
        [
            StudyCell(first.name, "lost", 0, digest(study, first, lost), {"mean": 0.5}),
            StudyCell(first.name, "lost", 1, digest(study, first, lost), {"mean": 0.7}),
            StudyCell(second.name, "lost", 0, digest(study, second, lost), {"mean": 0.5}),
            StudyCell(third.name, "lost", 0, digest(study, third, lost), diverged="round 3: the run has diverged"),
            StudyCell(fourth.name, "lost", 0, digest(study, fourth, lost), {"mean": 0.25}),
            StudyCell(fourth.name, "lost", 1, digest(study, fourth, lost), {"mean": None}),
        ]
    )
    text = markdown(study, cells, [lost, study.column("birdsong")])
    assert "| `pfedpll` | 60.00 ± 14.14 | 56.04 | +3.96 |" in text
    assert "| `cc` | diverged | 55.03 |  |" in text
    assert "Not run yet: birdsong." in text
    assert f"| `{fourth.name}` | 25.00 (1 of 2 seeds) |" in text  # the other never reached it
    assert "Not run yet: cavl, laar, abs-gce, fedavg." in text
    assert "With fewer seeds: cc, lw." in text
    assert "cc, seed 0: round 3: the run has diverged." in text
    assert markdown(study, StudyCells(study.name), [lost]) == f"{study.title}. Not run yet."
