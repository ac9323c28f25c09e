"""Results of tables that are made by programs of their own, as cells of their studies, from the result files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks import positives_table
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest
from imperfed.experiments.study import Study, studies
from studies import fb_nll_accuracy

RESULTS = Path("benchmarks/results")
NOISES = {4: "class-independent", 5: "class-dependent", 6: "uniform", 8: "none"}
"""The noise of FB-NLL's tables."""
LINES = {
    "FB-NLL(-)": "FB-NLL(-)",
    "IFCA-PFL": "IFCA-PFL",
    "one model": "single global model",
    fb_nll_accuracy.CLEAN_LABELS: "FB-NLL(-)",
}
"""The rows of FB-NLL's tables by the names in its result file."""
TARGET = 0.85
"""The accuracy of pFedMo's figure 3.7."""
DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST"}


def imported() -> Iterator[StudyCells]:
    """Yield the results of every table that is made by a program of its own."""
    known = studies()
    yield _cells(known["fedalc/table-6"], fedalc(known["fedalc/table-6"]))
    yield _cells(known["pfedmo/figure-3.7"], deployment(known["pfedmo/figure-3.7"]))
    for number in NOISES:
        study = known[f"fb-nll/table-{number}"]
        yield _cells(study, fb_nll(study, NOISES[number]))


def _cells(study: Study, cells: Iterator[StudyCell]) -> StudyCells:
    return StudyCells(study.name).with_all(cells)


def fedalc(study: Study) -> Iterator[StudyCell]:
    """Yield FedALC's table VI: each line with the settings and the round chosen on validation rows."""
    records = list(positives_table.read(RESULTS / "positives.jsonl"))
    lines, rows = positives_table.lines_of(records, "bibtex"), {row.name: row for row in study.rows}
    column = study.column("bibtex")
    for name in rows.keys() & lines.keys():
        for run in lines[name]:
            figures = run["figures"][str(run["stops"][-1])]
            known = (key for key in ("p@1", "p@3", "p@5", "map") if key in figures)
            values = {f"global:{key}": figures[key] for key in known}
            yield StudyCell(name, column.name, run["seed"], digest(study, rows[name], column), values)


def fb_nll(study: Study, noise: str) -> Iterator[StudyCell]:
    """Yield one of FB-NLL's tables of accuracy."""
    rows = {row.name: row for row in study.rows}
    for piece, found in fb_nll_accuracy.known(RESULTS / "fb_nll_accuracy.jsonl").items():
        if piece.noise == noise and piece.data in DATA:
            column = study.column(f"{DATA[piece.data]} with {piece.tasks} tasks")
            for name, value in found.items():
                if LINES.get(name) in rows:
                    row = rows[LINES[name]]
                    yield StudyCell(
                        row.name, column.name, piece.seed, digest(study, row, column), {"mean": value / 100}
                    )


def deployment(study: Study) -> Iterator[StudyCell]:
    """Yield pFedMo's figure 3.7: when sixteen real processes passed the target."""
    rows, found = {row.name: row for row in study.rows}, json.loads((RESULTS / "deployment.json").read_text())
    for tau, methods in found.items():
        column = study.column(f"tau {tau}")
        for name in rows.keys() & methods.keys():
            rounds = methods[name]["rounds"]
            reached = rounds[-1]["accuracy"] >= TARGET
            figures = {
                "minutes to target": rounds[-1]["seconds"] / 60 if reached else None,
                "rounds to target": len(rounds) if reached else None,
                "mean": rounds[-1]["accuracy"],
            }
            yield StudyCell(name, column.name, 0, digest(study, rows[name], column), figures)
