"""What is guessed of files that nobody has described, on files written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from imperfed.census.guess import Guess, guess
from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Inputs, LabelColumns, SensitiveColumn, Uncertain, parse


def write(folder: Path, **files: str) -> Path:
    """CSV files; two underlines in a name stand for a folder."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def told(found: Guess) -> Guess:
    """The guess, once what would be written has been read back to the same."""
    assert parse(found.text(), found.declaration.file) == found.declaration
    return found


MISSING = "age,Nodule,Edema\n3,1,\n4,0,\n5,0,-1\n6,1,\n"


def test_columns_of_1_0_and_blanks_are_missing_labels(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, sites__a=MISSING, sites__b="age,Nodule,Edema\n3,,1\n4,,0\n"))).declaration
    assert found.sites == "sites/*.csv"
    assert found.inputs == Inputs(("age",))
    names = ("Nodule", "Edema")
    assert found.labels == LabelColumns("annotated", names, columns=names, uncertain=Uncertain(("-1",), "unknown"))


def test_a_class_that_nobody_has_filled_in_is_one_all_the_same(tmp_path: Path) -> None:
    rows = MISSING.replace("-1", "").replace("4,0,", "4,,")
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.labels.classes == ("Nodule", "Edema")


def test_the_policy_for_doubt_and_for_blanks_is_said(tmp_path: Path) -> None:
    why = "\n".join(guess(write(tmp_path, sites__a=MISSING, sites__b=MISSING)).why)
    assert "a blank is read as not annotated" in why
    assert "-1 is read as unknown" in why


def test_a_disease_that_a_hospital_has_no_column_of_is_not_annotated_there(tmp_path: Path) -> None:
    mercy, north = "sex,age,flu,covid\nm,3,1,0\nf,4,0,1\nf,5,0,0\nm,6,1,0\n", "sex,age,flu,gout\nm,3,1,0\nf,4,0,1\n"
    found = told(guess(write(tmp_path, mercy=mercy, north=north, south="sex,age,gout\nm,3,1\nf,4,0\n")))
    names = ("flu", "covid", "gout")
    assert found.declaration.labels == LabelColumns("annotated", names, columns=names)
    assert found.declaration.inputs == Inputs(("age",))
    assert found.declaration.attribute == SensitiveColumn("sex", ("f", "m"))
    assert any("a blank, or no such column at a site, is read as not annotated" in said for said in found.why)
    assert not any("left out" in said for said in found.why)


def test_complete_columns_of_0_and_1_beside_scattered_ones_are_inputs_and_named(tmp_path: Path) -> None:
    north, south = "age,flu,smoker\n3,1,0\n4,0,1\n5,0,0\n", "age,gout,smoker\n3,1,1\n4,0,0\n5,1,0\n"
    found = guess(write(tmp_path, north=north, south=south))
    assert found.declaration.labels.classes == ("flu", "gout")
    assert found.declaration.inputs == Inputs(("age", "smoker"))
    assert any("filled them in: smoker; move those that are labels" in sentence for sentence in found.why)


def test_a_complete_column_of_0_and_1_between_classes_is_one_of_them(tmp_path: Path) -> None:
    rows = "age,smoker,flu,cold,gout\n3,1,1,0,\n4,0,,1,1\n5,1,0,0,0\n"
    found = guess(write(tmp_path, a=rows, b=rows)).declaration
    assert found.labels.classes == ("flu", "cold", "gout")
    assert found.inputs.numeric == ("age", "smoker")


def test_blanks_of_one_input_of_yes_and_no_make_it_no_label(tmp_path: Path) -> None:
    rows = "age,smoker,risk\n3,1,low\n4,,high\n5,0,low\n6,1,high\n"
    found = guess(write(tmp_path, a=rows, b=rows)).declaration
    assert (found.labels.column, found.inputs.fill) == ("risk", {"smoker": "median"})


def test_a_last_column_of_words_is_the_label_though_others_are_scattered(tmp_path: Path) -> None:
    north, south = "age,smoker,risk\n3,1,low\n4,0,high\n5,0,low\n7,0,low\n", "age,old,risk\n3,1,low\n4,0,high\n"
    found = guess(write(tmp_path, north=north, south=south))
    assert found.declaration.labels == LabelColumns("exact", ("high", "low"), "risk")
    assert "left out: smoker; site south has no such column" in found.why


CROWD = (
    "id,w,labels,truth\nr1,0.5,cat|lynx,cat\nr2,1.5,dog,dog\nr3,2,cat|dog|lynx,lynx\nr4,1,cat,cat\nr5,2,dog|cat,dog\n"
)


def test_cells_with_separators_are_candidate_sets_and_a_column_within_them_is_the_truth(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, a=CROWD, b=CROWD))).declaration
    assert found.labels == LabelColumns("candidates", ("cat", "dog", "lynx"), "labels", truth="truth")
    assert found.id == "id"
    assert found.inputs == Inputs(("w",))


def test_list_columns_are_candidate_sets(tmp_path: Path) -> None:
    sets = pa.array([["cat"], ["cat", "dog"], ["dog"]] * 2)
    for site in ("a", "b"):
        parquet.write_table(pa.table({"w": [1.0, 2.0, 3.0] * 2, "tags": sets}), tmp_path / f"{site}.parquet")
    found = told(guess(tmp_path)).declaration
    assert found.sites == "*.parquet"
    assert found.labels == LabelColumns("candidates", ("cat", "dog"), "tags")


def test_a_test_file_among_the_sites_files_is_no_site(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, north=CROWD, south=CROWD, test=CROWD))).declaration
    assert found.sites == {"north": "north.csv", "south": "south.csv"}
    assert found.test == "test.csv"


def test_a_folder_a_site(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, north__rows=CROWD, south__rows=CROWD))).declaration
    assert found.sites == "*/rows.csv"


def test_a_folder_a_site_beside_one_for_tests(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, north__rows=CROWD, south__rows=CROWD, test__rows=CROWD))).declaration
    assert found.sites == {"north": "north/rows.csv", "south": "south/rows.csv"}
    assert found.test == "test/rows.csv"


OFFICES = (
    "hospital;age;sex;ethnicity;recorded;risk\n"
    "n;50;f;A|B;A;low\nn;61;m;A;A;high\nn;40;m;B;B;low\ns;40;f;B;B;low\ns;44;m;A|B;B;high\ns;58;f;A;A;low\n"
)


def test_one_file_for_all_with_a_sensitive_column(tmp_path: Path) -> None:
    found = told(guess(write(tmp_path, all=OFFICES) / "all.csv")).declaration
    assert (found.sites, found.site_column, found.delimiter) == ("all.csv", "hospital", "")
    assert found.attribute == SensitiveColumn("ethnicity", ("A", "B"), truth="recorded")
    assert found.labels == LabelColumns("exact", ("high", "low"), "risk")
    assert found.inputs == Inputs(("age",), {"sex": ("f", "m")})


def test_sites_of_one_class_each_hold_positives_only(tmp_path: Path) -> None:
    rows = "phone,w,word\n" + "".join(f"p{k},{i},{word}\n" for k, word in enumerate("aab") for i in range(3))
    found = told(guess(write(tmp_path, all=rows)))
    assert found.declaration.labels == LabelColumns("positive", ("a", "b"), "word")
    assert any("every site names a single class" in sentence for sentence in found.why)


def test_numbers_of_classes_are_in_their_order(tmp_path: Path) -> None:
    rows = "w,label\n" + "".join(f"{i}.5,{i % 12}\n" for i in range(36))
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.labels.classes == tuple(map(str, range(12)))


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


def test_labels_that_a_site_lacks_are_said_where_none_are_found(tmp_path: Path) -> None:
    rows = "w,v,label\n1.5,2,a\n2.5,3,b\n3.5,4,a\n4.5,5,b\n"
    with pytest.raises(DataError, match="no column looks like labels") as error:
        guess(write(tmp_path, north=rows, east="w,v\n1.6,6\n2.6,7\n"))
    assert "left out: label; site east has no such column" in str(error.value)


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
    found = told(guess(write(tmp_path, north=ages(0, l5="n/a", l7="-"), south=ages(100)))).declaration
    assert found.inputs == Inputs(("w", "age"), missing=("-", "n/a"), fill={"age": "median"})


def test_a_word_for_a_blank_is_a_category_among_words(tmp_path: Path) -> None:
    rows = "w,drinks,label\n" + "".join(f"{i}.5,{('none', 'daily')[i % 2]},{'ab'[i // 2 % 2]}\n" for i in range(8))
    found = guess(write(tmp_path, a=rows, b=rows.replace("daily", "none"))).declaration
    assert found.inputs.categorical == {"drinks": ("daily", "none")}
    assert not found.inputs.missing


def test_numbers_at_one_site_and_words_at_another_are_no_input(tmp_path: Path) -> None:
    numbers = "w,dose,label\n" + "".join(f"{i}.5,{i},{'ab'[i % 2]}\n" for i in range(9))
    words = "w,dose,label\n" + "".join(f"{i}.5,{('low', 'high')[i % 2]},{'ab'[i % 2]}\n" for i in range(9))
    found = guess(write(tmp_path, a=numbers, b=words))
    assert found.declaration.inputs == Inputs(("w",))
    assert "left out: dose; numbers in a.csv, but words in b.csv ('high', 'low'): not one kind of value" in found.why


def test_free_text_is_neither_label_nor_sensitive(tmp_path: Path) -> None:
    notes = ("cough, dry and at night, fever", "none, said the patient himself", "cough, wet")
    rows = "w,note,label\n" + "".join(f'{i}.5,"{notes[i % 3]}",{"ab"[i % 2]}\n' for i in range(9))
    found = guess(write(tmp_path, a=rows, b=rows)).declaration
    assert found.labels.column == "label"
    assert found.attribute is None


def test_several_classes_in_test_rows_mean_positives(tmp_path: Path) -> None:
    rows = "w,tags\n" + "".join(f"{i}.5,{'u|v' if i % 2 else 'v'}\n" for i in range(6))
    found = guess(write(tmp_path, sites__a=rows, sites__b=rows, test=rows))
    assert found.declaration.labels == LabelColumns("positives", ("u", "v"), "tags")
    assert any("test rows, whose labels are taken as true, name several classes" in said for said in found.why)


def test_the_cells_of_a_large_site_are_named_all_the_same(tmp_path: Path) -> None:
    found = guess(write(tmp_path, north=ages(0, l5="old"), south=ages(100, 2000)))
    assert any("'old' (north.csv, line 5)" in sentence for sentence in found.why)


def test_rows_of_parquet_files_are_counted(tmp_path: Path) -> None:
    for site, first in (("a", 0), ("b", 100)):
        age = ["old" if (site, i) == ("b", 7) else str(first + i) for i in range(40)]
        parquet.write_table(pa.table({"age": age, "label": ["x", "y"] * 20}), tmp_path / f"{site}.parquet")
    assert any("'old' (b.parquet, row 7)" in sentence for sentence in guess(tmp_path).why)


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
    found = told(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.inputs == Inputs(sparse="words", features=8)


def test_rows_of_one_patient_belong_together(tmp_path: Path) -> None:
    rows = "patient,w,label\n" + "".join(f"{i // 2},{i}.5,{i % 2}\n" for i in range(6))
    found = told(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.group == "patient"
    assert found.inputs == Inputs(("w",))


def test_an_id_that_comes_twice_is_no_input_and_its_lines_are_named(tmp_path: Path) -> None:
    rows = "id,w,label\n" + "".join(f"{i},{i}.5,{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows.replace("\n4,", "\n1,"))).declaration, guess(tmp_path).why
    assert (found[0].id, found[0].inputs) == ("", Inputs(("w",)))
    assert "left out: id, an id by its name; '1' occurs twice (b.csv, line 3 and line 6)" in found[1]


def test_ids_of_one_file_for_all_count_anew_at_every_site(tmp_path: Path) -> None:
    rows = "site,id,w,label\n" + "".join(f"{'ab'[i // 4]},{i % 4},{i}.5,{i % 2}\n" for i in range(8))
    found = told(guess(write(tmp_path, all=rows))).declaration
    assert (found.id, found.inputs) == ("id", Inputs(("w",)))


def test_patients_of_one_row_each_are_ids(tmp_path: Path) -> None:
    rows = "patient_weight,patient,label\n" + "".join(f"{i}.5,{i},{i % 2}\n" for i in range(6))
    found = guess(write(tmp_path, a=rows, b=rows)).declaration
    assert (found.id, found.inputs) == ("patient", Inputs(("patient_weight",)))


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


def paint(path: Path, mode: str, side: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (side, side // 2)).save(path)


def test_folders_of_images(tmp_path: Path) -> None:
    for site, label in (("a", "cat"), ("b", "cat"), ("b", "dog"), ("test", "cat")):
        paint(tmp_path / site / label / "1.png", "RGB", 448)
    found = told(guess(tmp_path)).declaration
    assert found.sites == {"a": "a", "b": "b"}
    assert found.test == "test"
    assert found.inputs == Inputs(size=(112, 224), channels=3)
    assert found.labels == LabelColumns("exact", ("cat", "dog"))


def test_paths_of_images_in_a_column(tmp_path: Path) -> None:
    for number in range(4):
        paint(tmp_path / "shots" / f"{number}.png", "L", 30)
    rows = "file,label\n" + "".join(f"shots/{i}.png,{'ab'[i % 2]}\n" for i in range(4))
    found = told(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.inputs == Inputs(image="file", size=(15, 30), channels=1)
    assert found.id == "file"


def test_npz_files(tmp_path: Path) -> None:
    for site in ("a", "b"):
        np.savez(tmp_path / f"{site}.npz", x=np.ones((2, 3)), candidates=np.eye(2, dtype=bool), classes=["u", "v"])
    found = told(guess(tmp_path)).declaration
    assert found.inputs == Inputs(array="x")
    assert found.labels == LabelColumns("candidates", ("u", "v"), "candidates")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("w,v,label\n1,2,a\n2,3,b\n3,4,a\n", "a column that names the site"),
        ("site,w,label\na,1,u\na,2,v\n,3,u\nb,4,v\nb,5,u\n", "line 4, column site: found a blank, expected a site's"),
        ("site,w,v\na,1.5,2.5\na,2.5,3.5\nb,3.5,4.5\nb,3.6,4.6\n", "no column looks like labels"),
        ("site,w,label\na,1\n", "line 2: found 2 cells, expected 3 as in the header"),
    ],
)
def test_what_cannot_be_guessed_is_said_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        guess(write(tmp_path, all=text) / "all.csv")
    assert "all.csv" in str(error.value)


def test_text_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, a=CROWD, b=CROWD)
    (tmp_path / "b.csv").write_bytes(CROWD.replace("dog|cat", "d\xf6g|cat").encode("latin-1"))
    with pytest.raises(DataError, match=r"b\.csv, line 6: found b'\\xf6', expected UTF-8 text"):
        guess(tmp_path)


def test_all_ragged_rows_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, a=CROWD.replace("r2,1.5,", "r2,"), b=CROWD, c=CROWD.replace("r4,", "r4,,").replace("r5,", ""))
    with pytest.raises(DataError) as error:
        guess(tmp_path)
    first, *lines = str(error.value).splitlines()
    assert first == f"{tmp_path.name}: 3 problems; nothing was trained or written"
    assert [line.partition("; ")[0] for line in lines] == [
        f"  {tmp_path / 'a.csv'}, line 3: found 3 cells, expected 4 as in the header",
        f"  {tmp_path / 'c.csv'}, line 5: found 5 cells, expected 4 as in the header",
        f"  {tmp_path / 'c.csv'}, line 6: found 3 cells, expected 4 as in the header",
    ]


def test_quoted_text_may_span_lines_in_files_of_any_size(tmp_path: Path) -> None:
    rows = "w,note,label\n" + "".join(f'{i}.5,"one{" " * 70}\n\n, two {i}\n",{"ab"[i % 2]}\n' for i in range(20_000))
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.inputs == Inputs(("w",))


def test_what_only_the_fast_reader_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv: found straddling object .*, expected a table; write it again"):
        guess(write(tmp_path, a=f"w,note,label\n1,{'x' * 3_000_000},a\n2,y,b\n", b="w,note,label\n1,x,a\n2,y,b\n"))


def test_files_that_are_no_tables_are_told_at_once(tmp_path: Path) -> None:
    for site in ("a", "b"):
        (tmp_path / f"{site}.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="2 problems") as error:
        guess(tmp_path)
    assert "b.parquet" in str(error.value)
    with pytest.raises(DataError, match=r"a\.csv: found no rows"):
        guess(write(tmp_path / "more", a="", b=CROWD))


def test_files_that_have_nothing_in_common(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column in common"):
        guess(write(tmp_path, a="w,label\n1,a\n2,b\n", b="v,class\n1,a\n2,b\n"))


def test_one_archive_for_all_is_given_to_a_run_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((4, 3)), y=[0, 1, 0, 1], site=[0, 0, 1, 1])
    with pytest.raises(DataError, match="toml; use it for a run as it is"):
        guess(tmp_path / "all.npz")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found no sites"):
        guess(tmp_path)


def test_the_truth_of_a_label_is_not_the_label_though_it_comes_last(tmp_path: Path) -> None:
    rows = "ink,digit,true_digit\n" + "".join(f"{i}.5,{i % 3},{(i + i // 4) % 3}\n" for i in range(12))
    found = told(guess(write(tmp_path, sites__a=rows, sites__b=rows))).declaration
    assert found.labels == LabelColumns("exact", ("0", "1", "2"), "digit", truth="true_digit")
    assert found.inputs == Inputs(("ink",))


def test_a_column_called_the_truth_may_be_all_the_labels_there_are(tmp_path: Path) -> None:
    rows = "ink,true_digit\n" + "".join(f"{i}.5,{i % 3}\n" for i in range(12))
    assert guess(write(tmp_path, sites__a=rows, sites__b=rows)).declaration.labels.column == "true_digit"


@pytest.mark.parametrize("name", ["north.xlsx", "old/south.xls"])
def test_spreadsheets_are_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PK")
    for given in (tmp_path, path):
        with pytest.raises(DataError, match=rf"{name}: found a spreadsheet.*save each sheet as CSV"):
            guess(given)
