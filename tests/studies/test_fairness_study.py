"""The fairness study: its cells, its oracle, and the table it makes of results."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

from imperfed.core.exchange import Updates
from imperfed.defences import defences
from studies import fairness as study
from studies.fairness import Cell, Removed

CLEAN = Cell("compas", "iid", "", "none", 0)


def record(cell: Cell, accuracy: float, eod: float | None, spd: float, out: tuple[int, ...] = ()) -> study.Record:
    figures = {"eod": {"value": eod, "interval": None}, "spd": {"value": spd, "interval": None}}
    guilty = (3, 4, 5) if cell.attack else ()
    return (
        asdict(cell)
        | {"accuracy": accuracy, "fairness": {"candidate": figures}, "adversaries": guilty}
        | {
            "out": [[], list(out)],
            "seconds": 1.0,
        }
    )


def results() -> dict[Cell, study.Record]:
    attacked, defended = replace(CLEAN, attack="plfa"), replace(CLEAN, attack="plfa", defence="fairfedpapl")
    alarm = replace(CLEAN, defence="fairfedpapl")
    found = {}
    for seed, shift in ((0, 0.0), (1, 0.1)):
        for cell, *figures in (
            (CLEAN, 0.75, -0.1 + shift, 0.0),
            (alarm, 0.75, -0.1, 0.0, (1,) if seed else ()),
            (attacked, 0.7, 0.2 - shift, 0.3),
            (defended, 0.74, -0.2, 0.1, (3, 4, 9) if seed else (3,)),
        ):
            cell = replace(cell, seed=seed)
            found[cell] = record(cell, *figures)
    return found


def test_the_distance_is_to_the_clean_run_of_the_same_seed():
    runs = [replace(CLEAN, attack="plfa", seed=seed) for seed in (0, 1)]
    assert study.deltas(results(), runs, "eod") == pytest.approx([0.3, 0.1])  # 0.2 + 0.1, and 0.1 - 0.0
    assert study.deltas(results(), runs, "spd") == pytest.approx([0.3, 0.3])
    runs = [replace(CLEAN, attack="plfa", defence="fairfedpapl", seed=seed) for seed in (0, 1)]
    assert study.deltas(results(), runs, "eod") == pytest.approx([0.1, 0.2])  # below the clean run is away from it, too


def test_the_table_by_hand():
    lines = study.table(results(), "compas", "iid").splitlines()
    assert lines[2] == (
        "| nobody | none | 0.750 ± 0.000 (0.748) | -0.050 ± 0.071 (-0.087) | 0.000 ± 0.000 | 0.000 ± 0.000 |  |"
    )
    assert lines[3].endswith("| 0.5 honest out |")
    assert lines[4].startswith(
        "| plfa | none | 0.700 ± 0.000 (0.732) | 0.150 ± 0.071 (-0.009) | 0.200 ± 0.141 (0.078) | 0.300 ± 0.000 |"
    )
    assert lines[5].endswith("| 0.75 / 0.50 |")  # three of four that are out attack; three of six that attack are out
    assert len(lines) == 6


def test_undefined_figures_are_left_out_and_said():
    assert study.spread([None, None]) == "undefined"
    assert study.spread([None, 0.25]) == "0.250"
    cell = replace(CLEAN, attack="plfa")
    found = {CLEAN: record(CLEAN, 0.7, None, 0.0), cell: record(cell, 0.7, 0.1, 0.0)}
    assert study.deltas(found, [cell], "eod") == [None]


def test_the_oracle_leaves_the_adversaries_out():
    updates = Updates((0, 3, 5, 7), torch.arange(4.0), {"w": torch.arange(8.0).view(4, 2)})
    kept, memory = Removed(sites=(3, 7)).inspect({}, {}, updates, None)
    assert kept.who == (0, 5)
    assert kept["w"].tolist() == [[0, 1], [4, 5]]
    assert memory == {}
    assert Removed(sites=(0, 3, 5, 7)).inspect({}, {}, updates, None)[0] is None
    assert "removed" not in defences()  # nobody can have it outside a study


def test_cells_and_settings():
    cells = list(study.cells(["compas", "student"], ["iid", "dirichlet"], [0, 1]))
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * (3 + 3 * 7)
    assert all(cell.seed == 0 for cell in cells[: len(cells) // 2])
    config = study.config_of(Cell("student", "dirichlet", "mixup", "oracle", 4))
    assert (config.rounds.rounds, config.local.lr, config.run.data_seed) == (60, 0.02, 4)
    assert str(config.split.partition) == "dirichlet beta=1.0"
    assert config.attack.name == "mixup"
    assert (config.attack.target, config.attack.unprivileged, config.attack.alpha) == ("Asian", "F", 0.5)
    other = study.config_of(Cell("compas-african-american", "iid", "plfa", "none", 0))
    assert (other.attack.target, other.fairness.target, other.rounds.rounds) == ("African-American",) * 2 + (50,)


def test_what_was_run_is_read_back(tmp_path):
    path = tmp_path / "results.jsonl"
    assert study.read(path) == {}
    path.write_text("".join(json.dumps(r) + "\n" for r in results().values()))
    assert study.read(path).keys() == results().keys()


def test_tables_of_what_is_there_and_words_that_mean_nothing(tmp_path, capsys):
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results().values()))
    study.main(["--only-table", "--scenes", "compas", "--splits", "iid", "--out", str(tmp_path)])
    assert capsys.readouterr().out == f"\n### compas, iid\n\n{study.table(results(), 'compas', 'iid')}\n"
    for words in (["--scenes", "compass"], ["--splits", "iid,skewed"], ["--seeds", "0;1"]):
        with pytest.raises(SystemExit):
            study.main([*words, "--out", str(tmp_path)])
    assert "skewed is none of iid, dirichlet" in capsys.readouterr().err


def test_the_printed_deltas_that_do_not_follow_from_the_printed_figures():
    """All others are the distance of the thesis's own EODs to the last digit, give or take one."""
    odd = []
    for data, splits in study.thesis().items():
        for split, rows in splits.items():
            for defence, row in rows.items():
                for attack, delta in enumerate(row.get("delta", ())):
                    if abs(abs(row["eod"][attack] - rows["clean"]["eod"]) - delta) > 0.0015:
                        odd.append((data, split, defence, study.ATTACKS[attack]))
    assert odd == [
        ("compas", "dirichlet", "none", "mixup"),
        ("student", "iid", "none", "mixup"),
        ("student", "iid", "krum", "mixup"),
    ]
