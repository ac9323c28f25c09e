"""The figures of the thesis for attacks on fairness and defences, its table 5.1."""

from __future__ import annotations

from imperfed.experiments.study import studies
from studies.lines import Record

ATTACKS = ("plfa", "pafa", "mixup")


def thesis() -> Record:
    """Return the figures of the thesis by dataset, split and defence: of each attack, in the order of `ATTACKS`."""
    figures: Record = {}
    rows = {"no attack": "clean", "no defence": "none", "trimmed mean": "trimmed-mean"}
    for column in studies()["fairness/table-5.1"].columns:
        of_split = figures.setdefault(column.settings["data"], {}).setdefault(column.settings["split.partition"], {})
        for row, values in column.paper.items():
            defence = of_split.setdefault(rows.get(row, row.lower()), {})
            for figure, number in zip(("accuracy", "eod", "delta"), values, strict=False):
                defence.setdefault(figure, {})[column.settings["attack"]] = number
    return {data: {split: _in_order(found) for split, found in of_data.items()} for data, of_data in figures.items()}


def _in_order(defences: Record) -> Record:
    """Return the figures of each defence as a list over the attacks, and those without attack as numbers."""
    listed = {
        name: {key: [by[a] for a in ATTACKS] for key, by in figures.items()} for name, figures in defences.items()
    }
    return listed | {"clean": {key: numbers[0] for key, numbers in listed["clean"].items()}}
