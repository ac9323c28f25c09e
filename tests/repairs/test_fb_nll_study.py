"""The study's own pieces: controls with the same gate, groups by mean features, and its cells."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Exact
from studies.controls import Scores, corrected_by, means, probe
from studies.fb_nll import mean_features, spread
from studies.fb_nll_accuracy import CLEAN_LABELS, Piece, known, methods, pieces, table
from tests.support.crowd import CLASSES, rows


def noisy() -> tuple[Federation, torch.Tensor]:
    """Two sites, one a task, every third label the next class."""
    draw = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 1] * 60 + [2, 3] * 60)
    told = torch.where(torch.arange(240) % 3 == 0, (y + 1) % 4, y)
    clean = torch.arange(4).repeat_interleave(25)
    trusted = Trusted(rows(clean, draw), Exact(clean, 4))
    x = rows(y, draw)
    ids = tuple(map(str, range(240)))
    federation = Federation("made", x, Exact(told, 4), (0, 60, 120, 180, 240), tuple("wxyz"), CLASSES, ids, x[:0])
    return Federation(**{**vars(federation), "trusted": trusted}), y


@pytest.mark.parametrize("control", [means, probe])
def test_controls_set_labels_right_and_keep_to_the_gate(control: Scores) -> None:
    federation, y = noisy()
    labels = corrected_by(control, federation, 0.05)
    assert (labels == y).double().mean() > 0.97
    right = Federation(**{**vars(federation), "labels": Exact(y, 4)})
    assert (corrected_by(control, right, 0.05) != y).double().mean() < 0.1


def test_groups_by_mean_features() -> None:
    assert mean_features(noisy()[0], 2) == (0, 0, 1, 1)


def test_cells_name_the_least_where_seeds_differ() -> None:
    assert spread([1.0, 1.0, 1.0]) == "1.00"
    assert spread([0.9, 1.0, None]) == "0.95 (0.90)"
    assert spread([91.24, 91.2], 1) == "91.2"


def test_what_is_compared() -> None:
    compared = methods("cifar10", 3)
    assert [algorithm.name for algorithm, _ in compared.values()] == ["fedavg", "fedavg", "ifca", "fedavg", "fedavg"]
    assert [repair.groups if repair else 1 for _, repair in compared.values()] == [1, 1, 1, 3, 3]
    assert [repair.correct if repair else False for _, repair in compared.values()] == [False, True, False, False, True]


def test_a_row_of_accuracies_is_told_when_all_its_seeds_are_there(tmp_path: Path) -> None:
    file = tmp_path / "found.jsonl"
    assert known(file) == {}
    for piece in pieces(["mnist"]):
        if piece.tasks == 2 and piece.noise in ("none", "uniform"):
            clean = piece.noise == "none"
            found = {CLEAN_LABELS: 90.0} if clean else dict.fromkeys(methods("mnist", 2), 70.0 + piece.seed)
            with file.open("a") as opened:
                opened.write(json.dumps({"piece": asdict(piece), "found": found}) + "\n")
    assert known(file)[Piece("mnist", 2, "uniform", 1)]["FB-NLL"] == 71.0
    rows = list(table(known(file), ["mnist"]))
    cells = " | ".join(["71.0 (70.0)"] * 5)
    assert f"| mnist | 2 | uniform | {cells} | 90.0 |" in rows
    assert "| mnist | 3 | uniform | - | - | - | - | - | - |" in rows
