"""federation.toml: what is read from it, what is written, and everything that can be wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imperfed.core.errors import DataError
from imperfed.data.files.declaration import (
    Declaration,
    Inputs,
    LabelColumns,
    SensitiveColumn,
    Uncertain,
    _filled,
    parse,
    read_declaration,
)
from imperfed.data.files.problems import Problems

WHOLE = """
name = "clinics"
sites = "sites/*.csv"
id = "patient"
delimiter = ";"
test = "test/*.csv"
public = "public.csv"
trusted = "trusted.csv"

[inputs]
numeric = ["age", "bmi"]
standardise = false

[inputs.categorical]
sex = ["female", "male"]

[labels]
kind = "annotated"
classes = ["Effusion", "Nodule"]
columns = ["eff", "nod"]
missing = ["NA"]
truth = ["true eff", "true nod"]

[labels.uncertain]
values = [-1, "?"]
read_as = "unknown"

[attribute]
column = "race"
values = ["a", "b"]
separator = "/"
truth = "true race"
"""

LEAST = 'sites = "*.csv"\n[inputs]\nnumeric = ["a"]\n[labels]\nkind = "exact"\ncolumn = "y"\nclasses = [0, 1]\n'


def test_everything_that_can_be_said() -> None:
    said = parse(WHOLE, Path("here/federation.toml"))
    assert said == Declaration(
        name="clinics",
        sites="sites/*.csv",
        id="patient",
        delimiter=";",
        test="test/*.csv",
        public="public.csv",
        trusted="trusted.csv",
        inputs=Inputs(("age", "bmi"), {"sex": ("female", "male")}, standardise=False),
        labels=LabelColumns(
            "annotated",
            ("Effusion", "Nodule"),
            columns=("eff", "nod"),
            missing=("NA",),
            truth=("true eff", "true nod"),
            uncertain=Uncertain(("-1", "?"), "unknown"),
        ),
        attribute=SensitiveColumn("race", ("a", "b"), "/", "true race"),
        folder=Path("here"),
    )
    assert parse(said.toml(), Path("here/federation.toml")) == said


def test_the_least_that_must_be_said(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(LEAST, encoding="utf-8-sig")
    said = read_declaration(tmp_path)
    assert (said.name, said.labels.classes, said.folder) == (tmp_path.name, ("0", "1"), tmp_path)
    assert read_declaration(tmp_path / "federation.toml") == said


def test_sites_by_name_and_images_by_one_size() -> None:
    said = parse(
        '[sites]\nnorth = "n.csv"\nsouth = "s.csv"\n[test]\nnorth = "tn.csv"\n[inputs]\nimage = "file"\nsize = 28\n'
        'channels = 1\n[labels]\nkind = "candidates"\nclasses = ["a", "b"]\ncolumn = "set"\n'
    )
    assert said.sites == {"north": "n.csv", "south": "s.csv"}
    assert said.test == {"north": "tn.csv"}
    assert said.inputs.size == (28, 28)
    assert parse(said.toml()) == said


BROKEN = {
    'sties = "*.csv"': ["key sties", "did you mean 'sites'?"],
    'site_column = "s"': ["key sites", "a * and a site_column"],
    'sites = "a.csv"': ["key sites", "one path without *"],
    'sites = "*/*.csv"': ["key sites", "one *"],
    'sites = {global = "a.csv"}': ["sites.'global'", "name of another file"],
    'sites = {"../a" = "a.csv"}': ["cannot be the name of a file"],
    "sites = 3.5": ["key sites"],
    'delimiter = ";;"': ["key delimiter", "one character"],
    "id = true": ["key id", "expected text"],
    'inputs.numeric = "a"': ["key inputs.numeric", "a list of names"],
    'inputs.numeric = ["a", "a"]': ["'a' twice"],
    "inputs.numeric = []": ["key inputs", "found nothing"],
    'inputs.image = "i"': ["numeric or categorical and image", "key inputs.size"],
    'inputs.size = "big"': ["key inputs.size", "height and width"],
    'inputs.nummeric = ["a"]': ["inputs.nummeric", "did you mean 'numeric'?"],
    "inputs.categorical = {sex = []}": ["inputs.categorical.sex", "0 names"],
    'labels.kind = "exakt"': ["labels.kind", "did you mean 'exact'?"],
    'labels.classes = ["a"]': ["labels.classes", "at least 2"],
    'labels.classes = ["a", " b"]': ["without surrounding blanks"],
    'labels.columns = ["a", "b"]': ["column and columns", "labels are exact"],
    'labels.truth = ["a", "b"]': ["labels.truth", "the true class"],
    'labels = {kind = "candidates", classes = ["a|b", "c"], column = "y"}': ["labels.separator", "class 'a|b'"],
    'labels.missing = ["NA"]': ["labels.missing", "annotated"],
    "labels.uncertain = {values = [-1]}": ["labels.uncertain", "annotated"],
    "labels.uncertain = 3": ["labels.uncertain", "a table of keys"],
    "attribute = {values = [0, 1]}": ["attribute.column"],
    'attribute = {column = "a", values = [0]}': ["attribute.values", "not also an input"],
    "labels = 3": ["key labels"],
}


@pytest.mark.parametrize(("line", "parts"), BROKEN.items(), ids=BROKEN)
def test_a_broken_rule(line: str, parts: list[str]) -> None:
    import tomllib

    entries, change = tomllib.loads(LEAST), tomllib.loads(line)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(entries.get(key), dict)
        entries[key] = entries[key] | value if both else value
    text = "\n".join(f"{key} = {inline(value)}" for key, value in entries.items())
    with pytest.raises(DataError) as told:
        parse(text)
    for part in ["federation.toml", *parts]:
        assert part in str(told.value)


def test_uncertain_values_need_a_policy() -> None:
    text = LEAST.replace("exact", "annotated").replace('column = "y"', 'uncertain.values = ["-1"]')
    with pytest.raises(DataError, match=r"labels.uncertain.read_as: found '', expected one of unknown, positive"):
        parse(text)


def test_folders_of_images_have_exact_labels_and_no_columns() -> None:
    text = 'sites = "*"\nid = "i"\n[inputs]\nsize = 8\n[labels]\nkind = "positive"\ncolumn = "y"\nclasses = ["a"]\n'
    with pytest.raises(DataError) as told:
        parse(text)
    for part in (
        "labels.kind: found 'positive', expected exact labels",
        "key id: found 'i'",
        "labels.column: found 'y'",
    ):
        assert part in str(told.value)


def test_all_problems_at_once() -> None:
    with pytest.raises(DataError) as told:
        parse('nmae = "x"\n[inputs]\n[labels]\nkind = "none"\nextra = 1')
    lines = str(told.value).splitlines()
    assert lines[0] == "federation.toml: 6 problems; nothing was trained or written"
    assert len(lines) == 7


def test_files_that_are_no_declarations(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_declaration(tmp_path)
    path = tmp_path / "federation.toml"
    for content, why in ((b"a = [", "not a TOML file"), (b"a = '\xff'", "not UTF-8"), (b"\0", "not a TOML file")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=why):
            read_declaration(path)


@pytest.mark.parametrize("odd", ['"', "'", "\\", "a.b", "# no", "\x7f", "tab\tbed", "two\nlines", "é ✓", "[x]", "="])
def test_odd_strings_are_read_back(odd: str) -> None:
    said = Declaration(
        odd,
        {odd: f"{odd}.csv"},
        delimiter=odd,
        inputs=Inputs(("age", odd), {f"{odd}2": (odd, "b")}),
        labels=LabelColumns("exact", ("a", odd), "y"),
    )
    assert _filled(Declaration, tomllib.loads(said.toml()), "", Path(), Problems()) == said


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(lambda t: "|" not in t)


@given(
    st.lists(names, min_size=2, unique=True), st.dictionaries(names, st.lists(names, min_size=1, unique=True)), names
)
def test_what_is_written_is_read_back(classes: list[str], categories: dict[str, list[str]], name: str) -> None:
    inputs = Inputs(("9age",), {k: tuple(v) for k, v in categories.items() if k != "9age"})
    said = Declaration(name, "s/*.csv", inputs=inputs, labels=LabelColumns("exact", tuple(classes), "y"))
    assert parse(said.toml(), Path("federation.toml")) == said


def inline(value: object) -> str:
    """A TOML value on one line."""
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
