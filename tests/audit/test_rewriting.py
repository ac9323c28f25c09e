"""`imperfed repair`: the user's files again with corrected labels, nothing else changed, and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.label_audit.formats.parquet_labels import relabelled
from imperfed.label_audit.formats.text_labels import raw_cells
from tests.support.mislabelled import CLASSES, ROWS, WRONG, birds, declared, in_arrays, in_tables
from tests.support.small_files import candidates
from tests.support.terminal import done, imperfed
from tests.support.written_files import declare, write_table


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def there_and_back(folder: Path) -> Path:
    """Repair the files, undo the repair, and compare with the beginning; return the repaired folder.

    By force: so few rows seldom pass the check of features.
    """
    before = files_of(folder)
    repaired, back = folder.with_name("repaired"), folder.with_name("back")
    done("repair", folder, "--force", "--out", repaired)
    assert files_of(folder) == before
    done("repair", repaired, "--undo", "--out", back)
    assert files_of(back).keys() == before.keys()
    return repaired


def test_only_wrong_cells_of_text_change(tmp_path: Path) -> None:
    folder = in_tables(tmp_path / "birds")
    repaired = there_and_back(folder)
    assert files_of(tmp_path / "back") == files_of(folder)
    before, after = ((place / "sites/north.csv").read_text().splitlines() for place in (folder, repaired))
    assert after[0] == before[0] + ",label_given"
    true = birds("north")["true"]
    for row, (old, new) in enumerate(zip(before[1:], after[1:], strict=True)):
        cells = old.split(",")
        given, cells[4] = cells[4], true[row]
        assert new == ",".join([*cells, given])
    assert (repaired / "federation.toml").read_bytes() == (folder / "federation.toml").read_bytes()
    record = json.loads((repaired / "repair.json").read_text())
    assert record["changed"] == {"north": len(WRONG["north"]), "south": 0}


def test_a_run_takes_the_repaired_folder(tmp_path: Path) -> None:
    done("repair", in_tables(tmp_path / "birds"), "--out", tmp_path / "new")
    said = done("audit", tmp_path / "new", "--out", tmp_path / "audit")
    assert "Against the truth: no label is wrong." in said.out
    done("run", "fedavg", "--data", tmp_path / "new", "--rounds", "1", "--workers", "1", "--out", tmp_path / "runs")


def test_quotes_delimiters_line_ends_and_byte_order_marks_stay(tmp_path: Path) -> None:
    columns = birds("north")
    lines = ['"note; of ""mine""";bird;beak;wing;tail']
    for row in range(ROWS):
        bird = f'"{columns["bird"][row]}"' if row % 2 else columns["bird"][row]
        lines.append(f'"a;b\n{row}";{bird};{columns["beak"][row]};{columns["wing"][row]};{columns["tail"][row]}')
    folder = tmp_path / "birds"
    (folder / "sites").mkdir(parents=True)
    text = "\ufeff" + "\r\n".join(lines[:10]) + "\r\n\r\n;;;;\r\n" + "\r\n".join(lines[10:]) + "\r\n;;;;"
    (folder / "sites/north.csv").write_bytes(text.encode())
    labels = LabelColumns("exact", CLASSES, "bird")
    inputs = Inputs(("beak", "wing", "tail"))
    declare(folder, Declaration("birds", "sites/*.csv", delimiter=";", inputs=inputs, labels=labels))
    repaired = there_and_back(folder)
    assert files_of(tmp_path / "back") == files_of(folder)
    after = (repaired / "sites/north.csv").read_bytes().decode()
    assert after.startswith('\ufeff"note; of ""mine""";bird;beak;wing;tail;label_given\r\n"a;b\n0";finch;')
    assert after.count("\r\n\r\n;;;;;\r\n") == 1
    assert after.endswith("\r\n;;;;;")
    assert f'"a;b\n5";"{CLASSES[2]}";' in after


def test_all_sites_in_one_file_by_a_column(tmp_path: Path) -> None:
    parts = [pandas.DataFrame(birds(site)).assign(where=site) for site in ("north", "south")]
    mixed = pandas.concat(parts).sample(frac=1, random_state=0)
    folder = tmp_path / "birds"
    write_table(folder / "all.parquet", {name: mixed[name].tolist() for name in mixed})
    declare(folder, declared("all.parquet", site_column="where"))
    repaired = pandas.read_parquet(there_and_back(folder) / "all.parquet")
    assert repaired["bird"].tolist() == mixed["true"].tolist()
    assert repaired["label_given"].tolist() == mixed["bird"].tolist()
    assert parquet.read_table(tmp_path / "back/all.parquet").equals(parquet.read_table(folder / "all.parquet"))


def test_archives(tmp_path: Path) -> None:
    folder = in_arrays(tmp_path / "birds")
    repaired = there_and_back(folder)
    with np.load(repaired / "north.npz") as new, np.load(folder / "north.npz") as old:
        assert [CLASSES[c] for c in new["bird"]] == birds("north")["true"]
        assert new["bird"].dtype == old["bird"].dtype
        assert (new["label_given"] == old["bird"]).all()
    with np.load(tmp_path / "back/north.npz") as back, np.load(folder / "north.npz") as old:
        assert {*back} == {*old}
        assert all((back[name] == old[name]).all() for name in old)


def test_images_move_to_the_folder_of_their_class(tmp_path: Path) -> None:
    draw, folder = np.random.default_rng(0), tmp_path / "bars"
    for i in range(80):
        pixels = draw.integers(0, 80, (8, 8), np.uint8)
        pixels[(slice(None), slice(4)) if i % 2 else (slice(4), slice(None))] += 150
        given = ("top", "left")[i % 2 if i % 10 else 1 - i % 2]
        path = folder / f"sites/{'ab'[i // 40]}/{given}/{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    labels = LabelColumns("exact", ("left", "top"))
    declare(folder, Declaration("bars", "sites/*", inputs=Inputs(size=(8, 8), channels=1), labels=labels))
    repaired = there_and_back(folder)
    assert files_of(tmp_path / "back") == files_of(folder)
    tops = {path.stem for path in repaired.glob("sites/*/top/*.png")}
    assert tops == {f"{i:02}" for i in range(0, 80, 2)}
    listed = (repaired / "sites/a/label_given.csv").read_text().splitlines()
    assert listed[:2] == ["image,label_given,was", "top/00.png,left,left/00.png"]


def test_a_column_of_that_name_is_not_lost(tmp_path: Path) -> None:
    folder = in_tables(tmp_path / "birds")
    done("repair", folder, "--out", tmp_path / "one")
    done("repair", tmp_path / "one", "--out", tmp_path / "two")
    header = (tmp_path / "two/sites/north.csv").read_text().splitlines()[0]
    assert header.endswith(",label_given,label_given_2")


def test_other_files_of_the_declaration_come_along(tmp_path: Path) -> None:
    folder = in_tables(tmp_path / "birds")
    write_table(folder / "checked.csv", birds("south"))
    declare(folder, declared("sites/*.csv", trusted="checked.csv"))
    done("repair", folder, "--out", tmp_path / "new")
    assert (tmp_path / "new/checked.csv").read_bytes() == (folder / "checked.csv").read_bytes()


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([1, 2, 3]),
        pyarrow.array([1.0, 2.0, 3.0]),
        pyarrow.array(["1", "2", "3"]),
        pyarrow.array(["1", "2", "3"]).dictionary_encode(),
        pyarrow.DictionaryArray.from_arrays([2, 1, 0], ["3", "2", "1"], ordered=True),
    ],
)
def test_columns_keep_their_type(column: pyarrow.Array) -> None:
    new = relabelled(pyarrow.chunked_array([column]), {0: "2", 2: "4"}, "here")
    assert new.type == column.type
    assert [str(value).removesuffix(".0") for value in new.to_pylist()] == ["2", "2", "4"]


def test_cells_as_they_are_written() -> None:
    assert raw_cells('a,"b,""c"" ",,"",d"e', ",") == ["a", '"b,""c"" "', "", '""', 'd"e']


def wrong(tmp_path: Path, name: str) -> list[object]:
    """The words of a wrong call."""
    birds_folder = in_tables(tmp_path / "birds")
    out = ["--out", tmp_path / "out"]
    if name == "outside":
        declare(birds_folder / "inner", declared("../sites/*.csv"))
        return ["repair", birds_folder / "inner", *out]
    if name == "candidates":
        return ["repair", candidates(tmp_path / "sets"), *out]
    if name == "noise":
        return ["repair", in_tables(tmp_path / "noise", spread=40), *out]
    return {
        "dataset": ["repair", "digits", *out],
        "exists": ["repair", birds_folder, "--out", birds_folder],
        "not repaired": ["repair", birds_folder, "--undo", *out],
        "undo with settings": ["repair", birds_folder, "--undo", "--force", *out],
        "nowhere": ["repair", tmp_path / "nowhere", *out],
        "no out": ["repair", birds_folder],
        "rounds": ["repair", birds_folder, "--set", "rounds=3", *out],
    }[name]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("outside", "outside of"),
        ("candidates", "these are candidates"),
        ("noise", "Do not repair"),
        ("dataset", "a dataset of imperfed's"),
        ("exists", "nothing is overwritten"),
        ("not repaired", "not a folder that `imperfed repair` wrote"),
        ("undo with settings", "--undo takes no settings"),
        ("nowhere", "no such file or folder"),
        ("no out", "--out"),
        ("rounds", "trains no model"),
    ],
)
def test_wrong_calls(tmp_path: Path, name: str, part: str) -> None:
    said = imperfed(*wrong(tmp_path, name))
    assert said.code in (2, 3)
    assert part in said.err
    assert not (tmp_path / "out").exists()


def test_force_repairs_all_the_same(tmp_path: Path) -> None:
    done("repair", in_tables(tmp_path / "birds", spread=40), "--force", "--out", tmp_path / "out")
    assert (tmp_path / "out/repair.json").exists()
