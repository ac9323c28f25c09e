from __future__ import annotations

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.data.attributes import true_groups
from imperfed.data.sources import load, sources
from imperfed.data.sources.sensitive import COMPAS_FILE, STUDENT_FILE
from imperfed.data.stored_files import data_folder

HEADER = "id,sex,race,age,juv_fel_count,juv_misd_count,juv_other_count,priors_count,v_decile_score,score_text,"
HEADER += "days_b_screening_arrest,is_recid,c_charge_degree\n"
ROW = "{id},Male,Asian,30,0,1,2,3,4,{risk},{days},{recid},{degree}\n"


def there(name):
    if not sources()[name].present(data_folder()):
        pytest.skip(f"{name} is not in the data folder")
    return load(name)


def written(tmp_path, monkeypatch, text, path=COMPAS_FILE):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))
    return file


def row(id=1, risk="Low", days="-1", recid="0", degree="F"):
    return ROW.format(id=id, risk=risk, days=days, recid=recid, degree=degree)


def test_compas():
    data = there("compas")
    assert data.x.shape == (6172, 14)  # 8 features and 6 races
    assert data.classes == ("Low", "Medium", "High")
    assert torch.bincount(data.y).tolist() == [3421, 1607, 1144]
    groups = true_groups(data.x, data.attribute)
    assert dict(zip(data.attribute.values, torch.bincount(groups).tolist(), strict=True)) == {
        "African-American": 3175,
        "Asian": 31,
        "Caucasian": 2103,
        "Hispanic": 509,
        "Native American": 11,
        "Other": 343,
    }
    asian = groups == data.attribute.values.index("Asian")
    assert torch.bincount(data.y[asian]).tolist() == [24, 4, 3]
    assert data.x[0, :8].tolist() == [69, 0, 0, 0, 0, 1, 1, 1]  # age, four counts, violence 1, male, felony
    assert data.ids[:2] == ("1", "3")


def test_compas_without_the_violence_score():
    whole, less = there("compas"), there("compas-without-violence")
    assert torch.equal(less.x, torch.cat([whole.x[:, :5], whole.x[:, 6:]], 1))
    assert less.attribute.first == 7


def test_student():
    data = there("student")
    assert data.x.shape == (2392, 16)  # 12 features and 4 ethnicities
    assert torch.bincount(data.y).tolist() == [107, 269, 391, 414, 1211]
    groups = true_groups(data.x, data.attribute)
    assert torch.bincount(groups).tolist() == [1207, 493, 470, 222]
    assert torch.bincount(data.y[groups == data.attribute.values.index("Asian")]).tolist() == [27, 47, 76, 86, 234]
    assert there("student-without-gpa").x.shape == (2392, 15)


def test_the_filter_of_propublica(tmp_path, monkeypatch):
    kept = row(1, days="30") + row(2, days="-30") + row(3, risk="High", degree="M")
    dropped = row(4, days="31") + row(5, days="-31") + row(6, days="") + row(7, recid="-1") + row(8, degree="O")
    written(tmp_path, monkeypatch, HEADER + kept + dropped + row(9, risk="N/A"))
    data = load("compas")
    assert data.ids == ("1", "2", "3")
    assert data.y.tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER.replace("race,", "") + row(), "no column 'race'"),
        (HEADER + row() + "1,2\n", "line 3: 2 fields, expected 13"),
        (HEADER + row() + row(risk="Lowish"), "line 3, column score_text: 'Lowish' is none of Low, Medium, High"),
        (HEADER + row().replace("30,0", "old,0"), "line 2, column age: 'old' is not a number"),
        (HEADER + row().replace("30,0", "inf,0"), "row 0, feature 0: inf is not a finite"),
        (HEADER + 'a,"b\n', "cannot be read as a CSV file"),
        (HEADER, "no examples"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, monkeypatch, text, words):
    written(tmp_path, monkeypatch, text)
    with pytest.raises(DataError, match=words):
        load("compas")


def test_other_bytes_are_not_a_table(tmp_path, monkeypatch):
    file = written(tmp_path, monkeypatch, "x", STUDENT_FILE)
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(DataError, match="cannot be read as a CSV file in UTF-8"):
        load("student")
