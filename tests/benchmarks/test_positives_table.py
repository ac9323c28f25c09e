"""The tables of the study of positives are read off the file in which its runs are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import positives_table as tables


def record(line: str, seed: int, lam: float, validation: float, p: float) -> dict[str, Any]:
    figures = {"p@1": p, "p@3": p / 2, "p@5": p / 4, "map": p / 5}
    early = figures | {"p@1": p - 0.1}
    return {
        "data": "bibtex",
        "line": line,
        "settings": {"lam": lam, "lr_server": 0.01},
        "seed": seed,
        "stops": [3, 9],
        "validation": validation,
        "figures": {"3": early, "9": figures},
    }


RUNS = [
    record("FedALC", 1, 10.0, 0.2, 0.54),
    record("FedALC", 0, 30.0, 0.5, 0.9),  # as good on validation rows as the next: the smaller step is taken
    record("FedALC", 0, 10.0, 0.5, 0.5),
    record("FedAvg", 0, 10.0, 0.9, 0.6),
]


def test_settings_are_chosen_by_the_first_seeds_validation_rows():
    head, _, first, second = tables.table(RUNS, "bibtex").splitlines()
    assert "P@1 within 3 rounds" in head
    assert first.startswith("| FedAvg | 60.0 | 30.0 | 15.0 | 12.0 | λη 0.1 | 1 | 50.0 |")
    told = "| FedALC | 52.0 ± 2.8 | 26.0 ± 1.4 | 13.0 ± 0.7 | 10.4 ± 0.6 | λη 0.1 | 2 | 42.0 ± 2.8 |"
    assert second == f"{told} 59.67 / 36.04 / 27.18 |"


def test_the_sweep_lists_what_was_tried_and_a_missing_table_says_so():
    assert "| FedALC | λη 0.1: 50.0, λη 0.3: 50.0 |" in tables.sweep(RUNS, "bibtex")
    assert tables.sweep(RUNS, "enron") == tables.table(RUNS, "enron") == "Not run."


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path):
    path = tmp_path / "new" / "runs.jsonl"
    tables.append(path, RUNS[0])
    with path.open("a") as file:
        file.write('{"data": "bib')
    tables.append(path, RUNS[1])
    assert list(tables.read(path)) == RUNS[:2]
