"""The study of detectors: its runs, its attackers, and the table it makes of results."""

from __future__ import annotations

from dataclasses import replace

import torch

from studies import detectors as study
from studies.fairness import Cell, config_of
from studies.spread import AllGroups, TwoGroups
from tests.studies.test_fairness_study import CLEAN, record
from tests.support.fair_federation import federation


def test_every_detector_meets_every_attack_with_an_oracle_beside():
    cells = list(study.cells(["compas"], ["iid", "dirichlet"], study.ATTACKED, 2))
    assert len(cells) == len(set(cells)) == 2 * 2 * (4 + 5 * 5)
    assert all(cell.seed == 0 for cell in cells[: len(cells) // 2])
    assert config_of(replace(CLEAN, attack="all groups", defence="placebo")).attack.name == "all groups"
    config = config_of(Cell("compas", "dirichlet", "plfa", "fairfedpapl+placebo", 1))
    assert (config.defence.name, config.defence.target, config.defence.unprivileged) == (
        "fairfedpapl+placebo",
        "Asian",
        "High",
    )


def test_attackers_tie_the_class_to_several_groups():
    told, _ = federation(candidates=True)
    high = told.labels.values[:, 2]
    for attack, tied in ((TwoGroups, [1, 2]), (AllGroups, [0, 1, 2])):
        x, labels, note = attack(target="green", unprivileged="high").rewrite(
            told.x, told.labels, told.attribute, told.classes
        )
        assert labels is told.labels
        assert note == f"{len(tied)} groups tied to high"
        for group in range(3):
            expected = high.float() if group in tied else told.x[:, 1 + group]
            assert torch.equal(x[:, 1 + group], expected)
        assert torch.equal(x[:, [0, 4, 5, 6, 7]], told.x[:, [0, 4, 5, 6, 7]])


def test_the_table_by_hand():
    found = {}
    for seed, out in ((0, (3, 4, 9)), (1, (3,))):
        for cell, accuracy, eod, left_out in (
            (CLEAN, 0.75, -0.1, ()),
            (replace(CLEAN, attack="plfa"), 0.7, 0.2, ()),
            (replace(CLEAN, defence="placebo"), 0.75, -0.1, out[1:]),
            (replace(CLEAN, attack="plfa", defence="placebo"), 0.74, 0.0, out),
        ):
            cell = replace(cell, seed=seed)
            found[cell] = record(cell, accuracy, eod, 0.0, left_out)
    lines = study.table(found, "compas", "iid").splitlines()
    assert lines[2].startswith("| nobody | none | 2 |  |  |  | 0.750 ± 0.000 | -0.100 ± 0.000 | 0.000 ± 0.000 |")
    assert lines[3].startswith("| nobody | placebo | 2 |  | 1.00 | 1 of 2 | 0.750")
    assert lines[5] == (
        "| plfa | placebo | 2 | 0.50 | 0.50 | 1 of 2 | 0.740 ± 0.000 | 0.000 ± 0.000 | 0.100 ± 0.000 |"
    )  # three of six adversaries, and site 9 in one of two runs
    assert len(lines) == 6
