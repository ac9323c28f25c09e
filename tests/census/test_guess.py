"""What is guessed of the labels of undescribed data, on files written by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from imperfed.census.guess import guess
from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.declaration import Inputs, LabelColumns, SensitiveColumn, Uncertain
from tests.support.guessed import CROWD, read_back, write

MISSING = "age,Nodule,Edema\n3,1,\n4,0,\n5,0,-1\n6,1,\n"


def test_columns_of_1_0_and_blanks_are_missing_labels(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, sites__a=MISSING, sites__b="age,Nodule,Edema\n3,,1\n4,,0\n"))).declaration
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
    found = read_back(guess(write(tmp_path, mercy=mercy, north=north, south="sex,age,gout\nm,3,1\nf,4,0\n")))
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


def test_cells_with_separators_are_candidate_sets_and_a_column_within_them_is_the_truth(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, a=CROWD, b=CROWD))).declaration
    assert found.labels == LabelColumns("candidates", ("cat", "dog", "lynx"), "labels", truth="truth")
    assert found.id == "id"
    assert found.inputs == Inputs(("w",))


def test_list_columns_are_candidate_sets(tmp_path: Path) -> None:
    sets = pa.array([["cat"], ["cat", "dog"], ["dog"]] * 2)
    for site in ("a", "b"):
        parquet.write_table(pa.table({"w": [1.0, 2.0, 3.0] * 2, "tags": sets}), tmp_path / f"{site}.parquet")
    found = read_back(guess(tmp_path)).declaration
    assert found.sites == "*.parquet"
    assert found.labels == LabelColumns("candidates", ("cat", "dog"), "tags")


OFFICES = (
    "hospital;age;sex;ethnicity;recorded;risk\n"
    "n;50;f;A|B;A;low\nn;61;m;A;A;high\nn;40;m;B;B;low\ns;40;f;B;B;low\ns;44;m;A|B;B;high\ns;58;f;A;A;low\n"
)


def test_one_file_for_all_with_a_sensitive_column(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, all=OFFICES) / "all.csv")).declaration
    assert (found.sites, found.site_column, found.delimiter) == ("all.csv", "hospital", "")
    assert found.attribute == SensitiveColumn("ethnicity", ("A", "B"), truth="recorded")
    assert found.labels == LabelColumns("exact", ("high", "low"), "risk")
    assert found.inputs == Inputs(("age",), {"sex": ("f", "m")})


def test_sites_of_one_class_each_hold_positives_only(tmp_path: Path) -> None:
    rows = "phone,w,word\n" + "".join(f"p{k},{i},{word}\n" for k, word in enumerate("aab") for i in range(3))
    found = read_back(guess(write(tmp_path, all=rows)))
    assert found.declaration.labels == LabelColumns("positive", ("a", "b"), "word")
    assert any("every site names a single class" in sentence for sentence in found.why)


def test_numbers_of_classes_are_in_their_order(tmp_path: Path) -> None:
    rows = "w,label\n" + "".join(f"{i}.5,{i % 12}\n" for i in range(36))
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.labels.classes == tuple(map(str, range(12)))


def test_labels_that_a_site_lacks_are_said_where_none_are_found(tmp_path: Path) -> None:
    rows = "w,v,label\n1.5,2,a\n2.5,3,b\n3.5,4,a\n4.5,5,b\n"
    with pytest.raises(DataError, match="no column looks like labels") as error:
        guess(write(tmp_path, north=rows, east="w,v\n1.6,6\n2.6,7\n"))
    assert "left out: label; site east has no such column" in str(error.value)


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


def test_the_truth_of_a_label_is_not_the_label_though_it_comes_last(tmp_path: Path) -> None:
    rows = "ink,digit,true_digit\n" + "".join(f"{i}.5,{i % 3},{(i + i // 4) % 3}\n" for i in range(12))
    found = read_back(guess(write(tmp_path, sites__a=rows, sites__b=rows))).declaration
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


def test_a_label_of_1_0_and_blanks_is_not_annotated_where_it_is_blank(tmp_path: Path) -> None:
    rows = "age,label\n3,1\n4,0\n5,\n6,1\n"
    found = read_back(guess(write(tmp_path, a=rows, b=rows.replace("1", "1.0"))))
    assert found.declaration.labels == LabelColumns("annotated", ("label",), columns=("label",))
    assert "labels: label holds only 1, 0 and blanks; a blank is read as not annotated" in found.why


def test_a_complete_label_of_1_and_0_names_two_classes(tmp_path: Path) -> None:
    rows = "age,label\n3,1\n4,0\n5,0\n6,1\n"
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.labels == LabelColumns("exact", ("0", "1"), "label")


def test_columns_that_differ_in_case_are_said_to_be_one(tmp_path: Path) -> None:
    north, south = "age,Label\n3,a\n4,b\n5,a\n7,b\n", "age,label\n3,a\n4,b\n6,b\n7,b\n"
    with pytest.raises(DataError) as caught:
        guess(write(tmp_path, north=north, south=south))
    assert str(caught.value).endswith("\n  left out: Label; site south calls it label: give it one name at all sites")


def test_two_columns_of_one_file_are_two_however_alike_their_names(tmp_path: Path) -> None:
    north, south = "t1,t2,label\n3,1,a\n4,2,b\n5,3,a\n7,3,b\n", "t1,label\n3,a\n4,b\n6,b\n7,b\n"
    assert "left out: t2; site south has no such column" in guess(write(tmp_path, north=north, south=south)).why


def test_measurements_are_no_labels(tmp_path: Path) -> None:
    rows = "age,smoker,target\n" + "".join(f"{30 + i},{i % 2},{i / 7:.3f}\n" for i in range(40))
    with pytest.raises(DataError, match=r"a.csv, column target: found 40 different numbers, expected classes: "):
        guess(write(tmp_path, a=rows, b=rows))


def test_grades_are_labels(tmp_path: Path) -> None:
    rows = "age,target\n" + "".join(f"{30 + i},{1 + i % 4 / 3:.1f}\n" for i in range(40))
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.labels.classes == ("1.0", "1.3", "1.7", "2.0")


def test_the_columns_of_label_and_site_can_be_named(tmp_path: Path) -> None:
    rows = "age,finding,where,note\n" + "".join(f"{30 + i},{'ab'[i % 2]},{'xy'[i // 4]},text {i}\n" for i in range(8))
    path = write(tmp_path, all=rows)
    with pytest.raises(DataError, match=r"say which: imperfed inspect .*all.csv --site COLUMN"):
        guess(path)
    with pytest.raises(DataError, match=r"Say which one it is: imperfed inspect .* --label COLUMN"):
        guess(path, site="where")
    found = read_back(guess(path, "finding", "where"))
    assert found.declaration.site_column == "where"
    assert found.declaration.labels == LabelColumns("exact", ("a", "b"), "finding")
    assert "labels: finding (as you say), 2 classes; one class per row" in found.why
    with pytest.raises(UsageError, match=r"no column 'findings' to be used for that; did you mean"):
        guess(path, "findings", "where")
