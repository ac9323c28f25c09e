"""What is guessed of columns that are no labels: inputs, ids, patients, and what is left out."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from imperfed.census.columns import Column
from imperfed.census.guess import guess
from imperfed.census.input_values import LEVELS
from imperfed.census.inspect import inspect
from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Inputs
from imperfed.data.files.reading import read_sites
from tests.support.guessed import read_back, write


def test_what_no_model_can_be_given_is_left_out_and_said(tmp_path: Path) -> None:
    rows = "w,note,weight,label\n" + "".join(f"{i},text {i},{'' if i == 2 else i},{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows.replace("text", "words")))
    assert found.declaration.inputs == Inputs(("w", "weight"), fill={"weight": "median"})
    assert "left out: note; neither numbers nor a few words" in found.why
    assert any("weight has 2 blanks (16.67" in sentence for sentence in found.why)


def test_a_column_that_a_site_lacks_is_left_out_and_the_site_is_named(tmp_path: Path) -> None:
    rows = "w,pulse,label\n1,60,a\n2,70,b\n3,80,a\n4,90,b\n"
    bare = "w,only,label\n1,5,a\n2,6,b\n3,7,a\n4,8,b\n"
    found = guess(write(tmp_path, east__rows=bare, north__rows=rows, south__rows=rows))
    assert found.declaration.inputs == Inputs(("w",))
    assert "left out: pulse; site east has no such column" in found.why
    assert "left out: only; sites north, south have no such column" in found.why


def ages(first: int, rows: int = 40, **others: str) -> str:
    """Ages, in which no two rows agree; `l5="x"` is what stands in line 5 instead."""
    cells = [others.get(f"l{line}", str(first + line)) for line in range(2, rows + 2)]
    return "w,age,label\n" + "".join(f"{i}.5,{age},{'ab'[i % 2]}\n" for i, age in enumerate(cells))


def test_the_cells_that_spoil_a_column_of_numbers_are_named(tmp_path: Path) -> None:
    found = guess(write(tmp_path, north=ages(0, l5="old"), south=ages(100)))
    assert found.declaration.inputs == Inputs(("w",))
    blame = "numbers except for 'old' (north.csv, line 5); fix the cell, or leave it blank"
    assert f"left out: age; {blame}" in found.why
    found = guess(write(tmp_path, north=ages(0, l5="old"), south=ages(100, l2="young", l9="12 years")))
    blame = "'old' (north.csv, line 5), 'young' (south.csv, line 2), '12 years' (south.csv, line 9)"
    assert f"left out: age; numbers except for {blame}; fix the cells, or leave them blank" in found.why


def test_words_for_blanks_are_found_and_their_column_is_filled(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, north=ages(0, l5="n/a", l7="-"), south=ages(100)))).declaration
    assert found.inputs == Inputs(("w", "age"), missing=("-", "n/a"), fill={"age": "median"})


def test_a_word_for_a_blank_is_a_category_among_words(tmp_path: Path) -> None:
    rows = "w,drinks,label\n" + "".join(f"{i}.5,{('none', 'daily')[i % 2]},{'ab'[i // 2 % 2]}\n" for i in range(8))
    found = guess(write(tmp_path, a=rows, b=rows.replace("daily", "none"))).declaration
    assert found.inputs.categorical == {"drinks": ("daily", "none")}
    assert not found.inputs.missing


def test_a_category_may_hold_what_separates_names_elsewhere(tmp_path: Path) -> None:
    towns = ('"Boston, MA"', '"Austin, TX"', "one|two", "a;b")
    rows = "w,town,label\n" + "".join(f"{i}.5,{towns[i % 4]},{'ab'[i // 2 % 2]}\n" for i in range(8))
    found = read_back(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.inputs.categorical == {"town": ("Austin, TX", "Boston, MA", "a;b", "one|two")}
    assert read_sites(found).check().sites[0].rows.x[:, 1:].sum(1).tolist() == [1.0] * 8


def test_columns_of_neither_numbers_nor_text_are_left_out(tmp_path: Path) -> None:
    for site in ("a", "b"):
        nested = [{"of": i} for i in range(8)]
        table = pyarrow.table({"w": [i / 2 for i in range(8)], "nested": nested, "label": ["a", "b"] * 4})
        parquet.write_table(table, tmp_path / f"{site}.parquet")
    assert guess(tmp_path).declaration.inputs == Inputs(("w",))


def test_numbers_at_one_site_and_words_at_another_are_no_input(tmp_path: Path) -> None:
    numbers = "w,dose,label\n" + "".join(f"{i}.5,{i},{'ab'[i % 2]}\n" for i in range(9))
    words = "w,dose,label\n" + "".join(f"{i}.5,{('low', 'high')[i % 2]},{'ab'[i % 2]}\n" for i in range(9))
    found = guess(write(tmp_path, a=numbers, b=words))
    assert found.declaration.inputs == Inputs(("w",))
    assert "left out: dose; numbers in a.csv, but words in b.csv ('high', 'low'): not one kind of value" in found.why


def test_the_cells_of_a_large_site_are_named_all_the_same(tmp_path: Path) -> None:
    found = guess(write(tmp_path, north=ages(0, l5="old"), south=ages(100, 2000)))
    assert any("'old' (north.csv, line 5)" in sentence for sentence in found.why)


def test_numbers_that_are_taken_for_words_by_a_few_cells_are_said(tmp_path: Path) -> None:
    found = guess(write(tmp_path, north=ages(0, l5="old"), south=ages(0), east=ages(0)))
    assert "old" in found.declaration.inputs.categorical["age"]
    blame = "numbers except for 'old' (north.csv, line 5); fix the cell, or leave it blank"
    assert f"taken as words: age; {blame}" in found.why


def test_words_among_which_there_are_numbers_are_nobodys_fault(tmp_path: Path) -> None:
    many = {f"l{line}": f"about {line}" for line in range(2, 8)}
    found = guess(write(tmp_path, north=ages(0, **many), south=ages(100, **many)))
    assert "left out: age; neither numbers nor a few words" in found.why


def test_of_columns_with_one_name_no_cell_is_named(tmp_path: Path) -> None:
    twice = ages(0, l5="old").replace("w,age", "age,age")
    found = guess(write(tmp_path, north=twice, south=ages(100).replace("w,age", "age,age")))
    assert "left out: age; neither numbers nor a few words" in found.why


def test_pairs_of_index_and_value_are_sparse_features(tmp_path: Path) -> None:
    rows = "words,label\n0:1 7:0.5,a\n3:2,b\n2:1 5:-1e3,a\n1:1,b\n"
    found = read_back(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.inputs == Inputs(sparse="words", features=8)


def test_rows_of_one_patient_belong_together(tmp_path: Path) -> None:
    rows = "patient,w,label\n" + "".join(f"{i // 2},{i}.5,{i % 2}\n" for i in range(6))
    found = read_back(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.group == "patient"
    assert found.inputs == Inputs(("w",))


def test_an_id_that_comes_twice_is_no_input_and_its_lines_are_named(tmp_path: Path) -> None:
    rows = "id,w,label\n" + "".join(f"{i},{i}.5,{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows.replace("\n4,", "\n1,"))).declaration, guess(tmp_path).why
    assert (found[0].id, found[0].inputs) == ("", Inputs(("w",)))
    assert "left out: id, an id by its name; '1' occurs twice (b.csv, line 3 and line 6)" in found[1]


def test_ids_of_one_file_for_all_count_anew_at_every_site(tmp_path: Path) -> None:
    rows = "site,id,w,label\n" + "".join(f"{'ab'[i // 4]},{i % 4},{i}.5,{i % 2}\n" for i in range(8))
    found = read_back(guess(write(tmp_path, all=rows))).declaration
    assert (found.id, found.inputs) == ("id", Inputs(("w",)))


def test_patients_of_one_row_each_are_ids(tmp_path: Path) -> None:
    rows = "patient_weight,patient,label\n" + "".join(f"{i}.5,{i},{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows)).declaration
    assert (found.id, found.inputs) == ("patient", Inputs(("patient_weight",)))


@pytest.mark.parametrize(
    ("name", "number", "how"),
    [("Fall", "00{}", "by the leading zeros of its numbers"), ("Case No.", "7{}", "by its name")],
)
def test_numbers_of_rows_are_ids_and_no_inputs(tmp_path: Path, name: str, number: str, how: str) -> None:
    rows = f"{name},w,label\n" + "".join(f"{number.format(i)},{i}.5,{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows))
    assert (found.declaration.id, found.declaration.inputs) == (name, Inputs(("w",)))
    assert f"id: {name}, {how}; no value occurs twice at a site" in found.why


def test_numbers_of_rows_beside_an_id_and_postcodes_are_left_out(tmp_path: Path) -> None:
    rows = "id,case,postcode,w,label\n" + "".join(f"r{i},00{i},01{max(i, 1)},{i}.5,{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows.replace(",01", ",02")))
    assert (found.declaration.id, found.declaration.inputs.numeric) == ("id", ("w",))
    assert "left out: case, an id by the leading zeros of its numbers" in found.why
    assert "left out: postcode; numbers with leading zeros are codes, and no measurements" in found.why


def test_what_other_annotators_said_is_no_input(tmp_path: Path) -> None:
    rows = "w,smoker,first,annotator2,annotator3\n" + "".join(
        f"{i}.5,{'yn'[i % 2]},{'abc'[i % 3]},{'abc'[i // 2 % 3]},{'abc'[i % 3]}\n" for i in range(8)
    )
    found = guess(write(tmp_path, a=rows, b=rows))
    assert found.declaration.labels.column == "annotator3"
    assert found.declaration.inputs == Inputs(("w",), {"smoker": ("n", "y")})
    for name in ("first", "annotator2"):
        assert f"left out: {name}; its values are the classes, as if it were another label" in found.why


def test_inputs_of_yes_and_no_stay_where_the_label_is_one_too(tmp_path: Path) -> None:
    rows = "smoker,label,label_2\n" + "".join(f"{i % 2},{i // 2 % 2},{i // 3 % 2}\n" for i in range(8))
    found = guess(write(tmp_path, a=rows, b=rows))
    assert found.declaration.labels.column == "label"
    assert found.declaration.inputs == Inputs(("smoker",))
    assert "inputs with the values of the label: smoker; remove those derived from it" in found.why


def test_row_numbers_in_a_column_without_a_name_are_left_out(tmp_path: Path) -> None:
    rows = ",age,label\n0,30,a\n1,40,b\n2,50,a\n3,60,b\n"
    found = guess(write(tmp_path, a=rows, b=rows))
    assert found.declaration.inputs == Inputs(("age",))
    assert "left out: the column without a name; pandas writes row numbers so, unless index=False" in found.why


def test_a_column_of_trailing_marks_is_said_to_be_blank(tmp_path: Path) -> None:
    rows = "age;label;\n30;a;\n40;b;\n50;a;\n60;b;\n"
    found = guess(write(tmp_path, a=rows, b=rows))
    assert found.declaration.inputs == Inputs(("age",))
    assert "left out: the column without a name, which is blank" in found.why


@pytest.mark.parametrize("first", ["2021-03-01", "1.3.2021", "03/01/21", "2021-03-01 10:00"])
def test_dates_are_left_out_with_what_to_do(tmp_path: Path, first: str) -> None:
    rows = f"age,visit,label\n30,{first},a\n40,{first.replace('1', '2')},b\n50,{first.replace('3', '4')},a\n60,,b\n"
    found = guess(write(tmp_path, a=rows, b=rows.replace("2", "1")))
    assert any(why.startswith("left out: visit; dates; to use them") for why in found.why)


@pytest.mark.parametrize(("word", "said"), [("ward\u00a0b", r"'ward\xa0b'"), ('"ward\nb"', r"'ward\nb'")])
def test_words_with_characters_that_cannot_be_seen_are_left_out_and_shown(tmp_path: Path, word: str, said: str) -> None:
    rows = "w,ward,label\n" + "".join(f"{i}.5,{(word, 'icu')[i // 2 % 2]},{'ab'[i % 2]}\n" for i in range(9))
    found = inspect(write(tmp_path, a=rows, b=rows))
    assert found.declaration.inputs == Inputs(("w",))
    assert any(f"left out: ward; a character of {said} cannot be seen" in why for why in found.guessed)


DAYS = [datetime(2024, 5, 1 + i % 3) for i in range(12)]


@pytest.mark.parametrize(
    ("days", "first"),
    [
        (pyarrow.array(DAYS), "2024-05-01 00:00:00"),
        (pyarrow.array(DAYS, pyarrow.timestamp("ns", "UTC")), "2024-05-01 00:00:00+00:00"),
        (pyarrow.array(DAYS).cast(pyarrow.date32()), "2024-05-01"),
        (pyarrow.array([time(1 + i % 3) for i in range(12)]), "01:00:00"),
    ],
)
def test_a_few_days_or_times_of_day_are_categories_that_can_be_read(
    tmp_path: Path, days: pyarrow.Array, first: str
) -> None:
    table = pyarrow.table({"w": range(12), "day": days, "label": ["a", "b"] * 6})
    for site in ("north", "south"):
        parquet.write_table(table, tmp_path / f"{site}.parquet")
    found = inspect(tmp_path)
    assert found.declaration.inputs.categorical["day"][0] == first
    assert found.values[0].words["day"].counts[first] == 4


@pytest.mark.parametrize(
    "cells",
    [
        pyarrow.array([b"\x89PNG\xff"] * 12),
        pyarrow.array([[b"\x89PNG\xff"]] * 12),
    ],
)
def test_bytes_that_are_no_text_are_no_inputs(tmp_path: Path, cells: pyarrow.Array) -> None:
    table = pyarrow.table({"w": range(12), "odd": cells, "label": ["a", "b"] * 6})
    for site in ("north", "south"):
        parquet.write_table(table, tmp_path / f"{site}.parquet")
    assert inspect(tmp_path).declaration.inputs == Inputs(("w",))


def test_spans_of_time_are_numbers_and_bytes_may_be_text(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "lasted": pyarrow.array([timedelta(minutes=i) for i in range(12)]),
            "colour": pyarrow.array([b"red", b"green"] * 6),
            "label": ["a", "b", "c"] * 4,
        }
    )
    for site in ("north", "south"):
        parquet.write_table(table, tmp_path / f"{site}.parquet")
    found = inspect(tmp_path)
    assert found.declaration.inputs == Inputs(("lasted",), {"colour": ("green", "red")})
    assert found.values[0].numbers["lasted"].quantiles[LEVELS.index(0.5)] == 6 * 60


def test_the_columns_of_a_wide_table_are_not_compared_pair_by_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*what: object) -> bool:
        raise AssertionError(what)

    monkeypatch.setattr(Column, "__eq__", compared)
    monkeypatch.setattr("imperfed.data.files.rules.matches", compared)
    names = [f"gene{k}" for k in range(9)]
    cells = [[f"{i * k}.5" if (i + k) % 5 else "" for k in range(9)] for i in range(12)]
    rows = "".join(f"{','.join(row)},{'ab'[i % 2]}\n" for i, row in enumerate(cells))
    write(tmp_path, a=f"{','.join(names)},label\n{rows}", b=f"{','.join(names)},label\n{rows}")
    found = inspect(tmp_path).declaration.inputs
    assert found == Inputs((*names,), fill=dict.fromkeys(names, "median"))


def test_the_marks_of_many_classes_are_not_compared_pair_by_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*what: object) -> bool:
        raise AssertionError(what)

    monkeypatch.setattr(Column, "__eq__", compared)
    names = [f"finding{k}" for k in range(6)]
    cells = [[str((i + k) % 2) if k in (0, 3) or (i + k) % 5 else "" for k in range(6)] for i in range(12)]
    rows = "".join(f"{i}.5,{i % 2},{','.join(row)}\n" for i, row in enumerate(cells))
    write(tmp_path, a=f"w,sex,{','.join(names)}\n{rows}", b=f"w,sex,{','.join(names)}\n{rows}")
    assert inspect(tmp_path).declaration.labels.columns == tuple(names[1:])


def test_where_no_column_can_be_an_input_each_is_named_with_its_flaw(tmp_path: Path) -> None:
    rows = "share,label\n" + "".join(f"{i}.5%,{'ab'[i % 2]}\n" for i in range(9))
    write(tmp_path, a=rows, b=rows.replace(".5", ".7"))
    with pytest.raises(DataError, match=r"say what the inputs are\n  left out: share; neither numbers nor"):
        inspect(tmp_path)


def test_a_file_that_is_named_among_those_of_other_sites_says_to_name_the_folder(tmp_path: Path) -> None:
    rows = "w,label\n" + "".join(f"{i}.5,{'ab'[i % 2]}\n" for i in range(9))
    write(tmp_path, north=rows, south=rows)
    with pytest.raises(DataError, match=rf"a file of its own, name their folder: imperfed inspect {tmp_path}$"):
        inspect(tmp_path / "north.csv")


def test_files_of_other_formats_are_named_where_one_seems_to_be_all_there_is(tmp_path: Path) -> None:
    rows = "w,label\n" + "".join(f"{i}.5,{'ab'[i % 2]}\n" for i in range(9))
    write(tmp_path, north=rows)
    with pytest.raises(DataError, match=r"say which: imperfed inspect .*north.csv --site COLUMN$"):
        inspect(tmp_path)
    (tmp_path / "south.tsv").write_text(rows.replace(",", "\t"))
    (tmp_path / "west.xlsx").write_bytes(b"PK")
    (tmp_path / "README.md").write_text("what these files are")
    with pytest.raises(DataError, match=r"file of its own, give south.tsv, west.xlsx the same format$"):
        inspect(tmp_path)
