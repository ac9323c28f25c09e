"""The studies of label repair: their cells, their data, the figures of one cell, and the tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.engine.conversation import repair_labels
from studies import posterior as study
from studies.lines import numbers, read_lines, run_cells
from studies.noisy_data import FLIPS, NoisyCell, of_features
from studies.repairs_compared import POSTERIORS, attempt, both_ways, labels_of

SMALL = NoisyCell("digits", "digits", "hog", FLIPS[0], 0.2, sites=3, rows=40, clean=120, split=1)


def test_tables_have_no_cell_twice_and_know_their_name() -> None:
    cells = [cell for part in study.TABLES.values() for cell in part]
    assert len(cells) == len(set(cells))
    assert all(cell.table == name for name, part in study.TABLES.items() for cell in part)


@pytest.mark.parametrize("kind", FLIPS)
def test_labels_are_flipped_at_the_rate_asked_for(kind: str) -> None:
    federation, truth = replace(SMALL, rows=200, noise=kind).federated(None)
    wrong = federation.labels.values != truth
    assert float(wrong.double().mean()) == pytest.approx(0.2, abs=0.05)
    assert federation.trusted is not None
    assert len(federation.trusted.x) == 120
    n = federation.sizes()[0]
    changes = torch.stack([truth[:n], federation.labels.values[:n]], 1)[wrong[:n]]
    pairs = set(map(tuple, changes.tolist()))
    assert (len(pairs) == len({y for y, _ in pairs})) == (kind == FLIPS[1])  # a site takes a class for one other


def test_features_come_from_a_file_of_the_right_length(tmp_path: Path) -> None:
    file = tmp_path / "features.npz"
    np.savez(file, features=np.arange(1797 * 2).reshape(1797, 2).astype(np.float16))
    assert of_features("digits", study.NETWORK, file).x.shape == (1797, 2, 1, 1)
    np.savez(tmp_path / "short.npz", features=np.zeros((3, 2), np.float16))
    with pytest.raises(DataError, match="features of 3 rows; digits has 1797"):
        of_features("digits", study.NETWORK, tmp_path / "short.npz")


def test_a_cell_is_one_line_and_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.jsonl"
    shares = dict.fromkeys(study.COLUMNS, 0.25) | {f"{method} ranks": 0.5 for method in study.RANKED}
    cell = replace(study.TABLES["digits"][2], split=10)
    run_cells([asdict(cell) | shares | {"cleanlab": None}], dict, 1, path)
    assert study.read(path).keys() == {cell}
    capsys.readouterr()
    study.main(["digits", "--out", str(path), "--only-table"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| digits")]
    assert line.startswith("| digits | hog | flipped uniformly, 10 % | 5 | 1 | 25.0 (25.0) |")
    assert "| - |" in line
    assert len(read_lines(path)) == 1


def test_a_repair_both_ways_is_the_repair_with_and_without_insisting() -> None:
    federation, _ = SMALL.federated(None)
    (repair, _) = POSTERIORS.values()
    checked, unchecked, verdict = both_ways(repair, federation)
    for decisions, insist in ((checked, False), (unchecked, True)):
        found = repair_labels(replace(repair, insist=insist), federation)[1]
        assert torch.equal(labels_of(decisions), found.decided)
        assert found.verdict is not None
        assert found.verdict.figures == verdict.figures


def test_what_a_method_refuses_is_no_figure() -> None:
    def refuse() -> int:
        raise DataError("too few rows")

    assert attempt(refuse) is None
    assert attempt(lambda: 3) == 3


def test_numbers_and_ranges() -> None:
    assert numbers("0,3,10-12") == [0, 3, 10, 11, 12]
