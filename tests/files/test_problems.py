"""Every kind of problem in files, told with file, row and column, all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, read_declaration
from imperfed.data.files.problems import Problems
from imperfed.data.files.reading import read_sites
from tests.support import small_files as small
from tests.support.written_files import declare, write_table


def told(folder: Path) -> list[str]:
    """The problems of a federation, one line each, paths relative to it."""
    with pytest.raises(DataError) as error:
        read_sites(read_declaration(folder)).check()
    return [line.strip().replace(f"{folder}/", "") for line in str(error.value).splitlines()[1:]]


def changed(path: Path, change: Callable[[str], str]) -> None:
    path.write_bytes(change(path.read_bytes().decode()).encode())


def first(problem: str, folder: Path) -> None:
    """The only problem of a federation."""
    lines = told(folder)
    assert len(lines) == 1
    assert lines[0].startswith(problem), lines[0]


ROW = "north 2,22.5,f,lynx,lynx,b"
BAD_CELLS = {
    "a blank number": ("north 2,,f,lynx,lynx,b", "column age: found a blank, expected a finite number"),
    "not a number": ("north 2,22;5,f,lynx,lynx,b", "column age: found '22;5', expected a finite number"),
    "nan": ("north 2,nan,f,lynx,lynx,b", "column age: found 'nan', expected a finite number"),
    "inf": ("north 2,-inf,f,lynx,lynx,b", "column age: found '-inf', expected a finite number"),
    "too large": ("north 2,1e39,f,lynx,lynx,b", "column age: found '1e39', expected a finite number"),
    "underscores": ("north 2,2_2,f,lynx,lynx,b", "column age: found '2_2', expected a finite number"),
    "category": ("north 2,22.5,w,lynx,lynx,b", "column sex: found 'w', expected a declared category; known: f, m"),
    "class": ("north 2,22.5,f,lynks,lynx,b", "column animal: found 'lynks', expected a declared class; did you mean"),
    "one of a set": ("north 2,22.5,f,lynx|dogg,lynx,b", "column animal: found 'lynx|dogg', expected a declared class"),
    "empty set": ("north 2,22.5,f,,lynx,b", "column animal: found a blank, expected at least one class; name all"),
    "only separators": ("north 2,22.5,f,|,lynx,b", "column animal: found '|', expected at least one class"),
    "blank truth": ("north 2,22.5,f,lynx,,b", "column true: found a blank, expected a declared class"),
    "contradiction": ("north 2,22.5,f,dog,lynx,b", "column true: found what the candidates labels rule out"),
    "group": ("north 2,22.5,f,lynx,lynx,c", "column race: found 'c', expected a declared group"),
    "no group": ("north 2,22.5,f,lynx,lynx,", "column race: found a blank, expected at least one group"),
    "id twice": ("north 1,22.5,f,lynx,lynx,b", "column id: found 'north 1', as in line 3, expected every id once"),
    "no id": (" ,22.5,f,lynx,lynx,b", "column id: found a blank, expected an id"),
}


@pytest.mark.parametrize(("row", "problem"), BAD_CELLS.values(), ids=BAD_CELLS)
def test_a_bad_cell(row: str, problem: str, tmp_path: Path) -> None:
    small.candidates(tmp_path)
    changed(tmp_path / "sites/north.csv", lambda text: text.replace(ROW, row))
    first(f"sites/north.csv, line 4, {problem}", tmp_path)


def test_rows_that_are_too_short_or_too_long(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    changed(tmp_path / "sites/north.csv", lambda text: text.replace(ROW, f"{ROW},more").replace("north 3,23.5,", ""))
    fix = "expected 6 as in the header; add or remove cells, or quote the row's text"
    assert told(tmp_path) == [
        f"sites/north.csv, line 4: found 7 cells, {fix}",
        f"sites/north.csv, line 5: found 4 cells, {fix}",
    ]


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    path = tmp_path / "sites/north.csv"
    changed(path, lambda text: text.replace("north 0", '"north\n0\r\n""x"""').replace("north 1", "\n\nnorth 1"))
    assert len(read_sites(read_declaration(tmp_path)).check().sites[0].rows) == small.ROWS
    changed(path, lambda text: text.replace(ROW, ROW.replace("22.5", "old")))
    line = path.read_text().splitlines().index(ROW.replace("22.5", "old")) + 1
    assert line == 8
    first(f"sites/north.csv, line {line}, column age: found 'old'", tmp_path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(end: str, tmp_path: Path) -> None:
    small.candidates(tmp_path)
    changed(tmp_path / "sites/north.csv", lambda text: text.replace("\r\n", end))
    assert len(read_sites(read_declaration(tmp_path)).check().sites[0].rows) == small.ROWS
    changed(tmp_path / "sites/north.csv", lambda text: text.replace("22.5", "old"))
    first("sites/north.csv, line 4, column age", tmp_path)


def test_an_open_quote(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    changed(tmp_path / "sites/north.csv", lambda text: text.replace("north 2", '"north 2'))
    lines = told(tmp_path)
    assert (
        lines[-1]
        == "sites/north.csv, line 4: found unexpected end of data, expected rows of cells; fix the quotes of this row"
    )


def test_encodings(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    path = tmp_path / "sites/north.csv"
    text = path.read_text()
    path.write_bytes(text.encode("utf-8-sig"))
    assert read_sites(read_declaration(tmp_path)).check()
    path.write_bytes(text.replace("north 2", "nörd").encode("latin-1"))
    first(
        "sites/north.csv, line 4, column id: found b'n\\xf6rd', expected UTF-8 text; save the file as UTF-8; "
        "in Excel: CSV UTF-8",
        tmp_path,
    )
    path.write_bytes(text.encode("utf-16"))
    first("sites/north.csv: found UTF-16, expected UTF-8 text", tmp_path)
    path.write_bytes(b"PK\x03\x04\x14\x00\x06\x00, and what else a spreadsheet holds")
    first("sites/north.csv: found a spreadsheet, expected text; in the spreadsheet, save each sheet as CSV", tmp_path)


def test_columns_that_are_not_there_or_twice(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    changed(tmp_path / "sites/north.csv", lambda text: text.replace("id,age,sex", "id,agee,id"))
    absent = "found no such column, expected one of this name"
    assert told(tmp_path) == [
        f"sites/north.csv, column age: {absent}; did you mean 'agee'?",
        f"sites/north.csv, column sex: {absent}; known: id, agee, id, animal, true, race",
        "sites/north.csv, column id: found 2 columns of this name, expected one; rename the others",
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "id,age,sex,animal,true,race\n"])
def test_files_without_rows(text: str, tmp_path: Path) -> None:
    small.candidates(tmp_path)
    (tmp_path / "sites/north.csv").write_text(text)
    first("sites/north.csv: found no rows, expected at least one", tmp_path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    labels, inputs = LabelColumns("exact", ("0", "1"), "y"), Inputs(("a",))
    sites = {"north": "n.csv", "south": "s.xlsx", "west": "w"}
    (tmp_path / "w").mkdir()
    (tmp_path / "s.xlsx").write_text("?")
    declare(tmp_path, Declaration("here", sites, test="t/*.csv", public="p.npz", inputs=inputs, labels=labels))
    lines = told(tmp_path)
    assert lines[0].startswith("federation.toml, key test: found no file, expected files at t/*.csv")
    assert lines[1].startswith("n.csv: found no such file")
    assert lines[2].startswith(
        "s.xlsx: found another kind of file, expected a file ending in .csv, .tsv, .parquet, .npz"
    )
    assert lines[3].startswith("w: found a folder, expected a file")
    assert lines[4].startswith("p.npz: found no such file")
    declare(tmp_path, Declaration("here", "none/*.csv", inputs=inputs, labels=labels))
    first("federation.toml, key sites: found no file, expected files at none/*.csv", tmp_path)


@pytest.mark.parametrize(
    ("classes", "fix"),
    [
        (("a", "b", "c"), """drop the row, or name the classes that it may have, as "a|b", and write kind = """),
        (("0", "1"), """drop the row, or write kind = "annotated" and columns = ["y"]: a blank is then unknown"""),
    ],
)
def test_a_row_without_its_label_is_refused_with_what_can_be_written(
    tmp_path: Path, classes: tuple[str, ...], fix: str
) -> None:
    (tmp_path / "a.csv").write_text(f"w,y\n1,{classes[0]}\n2,\n3,{classes[1]}\n")
    labels = LabelColumns("exact", classes, "y")
    declare(tmp_path, Declaration("here", "*.csv", inputs=Inputs(("w",)), labels=labels))
    first(f"a.csv, line 3, column y: found a blank, expected one class of {', '.join(classes)}; {fix}", tmp_path)


def test_test_files_and_sites_must_match(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    (tmp_path / "test/north.csv").rename(tmp_path / "test/nord.csv")
    assert told(tmp_path) == [
        "federation.toml, key test: found no test file for north, expected one for every site; add it, "
        "or leave `test` out, and a share of every site's rows is held out",
        "test/nord.csv: found a test file of no site, expected a site of this name; rename or remove it",
    ]


def test_names_that_sites_cannot_have(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    for part in ("sites", "test"):
        (tmp_path / part / "north.csv").rename(tmp_path / part / "global.csv")
    first("sites/global.csv: found 'global', which is the name of another file of a run", tmp_path)
    small.annotated(tmp_path / "one")
    changed(tmp_path / "one/all.csv", lambda text: text.replace("south,1.0", "../south,1.0"))
    assert told(tmp_path / "one")[0].startswith("all.csv, line 3, column where: found '../south'")


def test_marks_and_uncertain_values(tmp_path: Path) -> None:
    small.annotated(tmp_path)
    changed(tmp_path / "all.csv", lambda text: text.replace("south,1.0,0,", "south,1.0,2,"))
    first(
        "all.csv, line 3, column cat: found '2', expected 1 (present), 0 (absent) or a blank (not annotated)", tmp_path
    )
    changed(tmp_path / "federation.toml", lambda text: text.replace('"positive"', '"refuse"'))
    assert told(tmp_path)[1].startswith("all.csv, line 5, column dog: found '-1', expected no uncertain value")


def test_classes_that_no_site_has_and_those_that_are_misspelt(tmp_path: Path) -> None:
    labels = LabelColumns("annotated", ("covid", "flu"))
    declare(tmp_path, Declaration("wards", "*.csv", inputs=Inputs(("age",)), labels=labels))
    (tmp_path / "a.csv").write_text("age,flu\n1,1\n")
    (tmp_path / "b.csv").write_text("age,flu,stay\n1,0,3\n")
    first("federation.toml, key labels.classes: found 'covid', which no file has, expected a column of at", tmp_path)
    (tmp_path / "b.csv").write_text("age,flu,Covid19\n1,0,1\n")
    first("b.csv, column covid: found no such column, expected one of this name; did you mean 'Covid19'?", tmp_path)


def test_another_delimiter_is_told_once_a_file(tmp_path: Path) -> None:
    folder = small.candidates(tmp_path)
    changed(folder / "sites/north.csv", lambda text: text.replace(",", ";"))
    changed(folder / "federation.toml", lambda text: f'delimiter = ","\n{text}')
    found = "found cells separated by ';', expected cells separated by ','"
    first(f"sites/north.csv, line 1: {found}; leave `delimiter` out", folder)


def test_rows_of_parquet_files_count_from_0(tmp_path: Path) -> None:
    small.candidates(tmp_path, "parquet")
    path = tmp_path / "sites/north.parquet"
    table = parquet.read_table(path)
    sets = [None, [], ["lynx", None], ["cat", "dog", "lynks"], ["dog", "cat"], ["lynx"]]
    ages = pyarrow.array([1.0, None, float("nan"), 4.0, 5.0, 6.0])
    table = table.set_column(1, "age", ages).set_column(
        3, "animal", pyarrow.array(sets, pyarrow.list_(pyarrow.string()))
    )
    parquet.write_table(table, path)
    lines = told(tmp_path)
    assert [line.partition(": ")[0] for line in lines] == [
        f"sites/north.parquet, row {row}, column {column}"
        for row, column in ((0, "animal"), (1, "age"), (1, "animal"), (2, "age"), (2, "animal"), (3, "animal"))
    ]
    path.write_bytes(path.read_bytes()[:100])
    assert told(tmp_path)[0].startswith("sites/north.parquet: found ")


def test_ids_that_are_no_text(tmp_path: Path) -> None:
    small.candidates(tmp_path, "parquet")
    path = tmp_path / "sites/north.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.set_column(0, "id", pyarrow.array([b"\xff%d" % i for i in range(6)])), path)
    first("sites/north.parquet, column id: found a column of binary, expected text or numbers", tmp_path)


BAD_ARRAYS = {
    "short": ({"y": np.zeros(5, int)}, "north.npz, array x: found 6 rows, expected as many rows in"),
    "classes": ({"sets": np.zeros((6, 2))}, "north.npz, array sets: found float64 of shape (6, 2), expected"),
    "values": ({"sets": np.full((6, 3), 2)}, "north.npz, row 0, array sets: found 2, expected 1 (present)"),
    "empty": ({"sets": np.eye(6, 3)}, "north.npz, row 3, array sets: found an empty set, expected at least one class"),
    "complex": ({"y": np.zeros(6, complex)}, "north.npz, array y: found complex128 of shape (6,), expected"),
    "class": ({"y": np.full(6, 3)}, "north.npz, row 0, array y: found 3, expected a declared class"),
    "nan": ({"x": np.full((6, 2), np.nan)}, "north.npz, row 0, array x: found nan at position 0 of the row"),
    "flat": ({"x": np.zeros(6)}, "north.npz, array x: found float64 of shape (6,), expected numbers, [n, ...]"),
    "other shape": ({"x": np.zeros((6, 9))}, "south.npz: found inputs of shape (1, 4, 4), expected (9,) as in"),
    "last": ({"x": np.zeros((6, 8, 8, 3))}, "north.npz, array x: found x: float64 of shape (6, 8, 8, 3) seems to have"),
    "objects": (
        {"x": np.array([1, "a"], object)},
        "north.npz: found cannot be read as an .npz archive of plain arrays",
    ),
}


@pytest.mark.parametrize(("arrays", "problem"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays(arrays: dict[str, np.ndarray], problem: str, tmp_path: Path) -> None:
    small.arrays(tmp_path)
    with np.load(tmp_path / "north.npz") as archive:
        np.savez(tmp_path / "north.npz", **dict(archive) | arrays)
    assert told(tmp_path)[0].startswith(problem)


def test_bad_images(tmp_path: Path) -> None:
    small.pictures(tmp_path / "folders")
    (tmp_path / "folders/sites/north/dog/1.png").write_bytes(b"no image")
    (tmp_path / "folders/sites/north/cat").rename(tmp_path / "folders/sites/north/katze")
    lines = told(tmp_path / "folders")
    assert lines[0].startswith("sites/north/dog/1.png, column image: found not readable as an image")
    assert lines[1].startswith("sites/north/katze/0.png, column class: found 'katze', expected a declared class")
    small.paths(tmp_path / "paths")
    (tmp_path / "paths/north/4.png").unlink()
    first("north.csv, line 6, column file: found 'north/4.png': no such file, expected an image", tmp_path / "paths")


def test_bad_pairs(tmp_path: Path) -> None:
    small.words(tmp_path)
    for pair, line in (
        ("5:1", 2),
        ("a:1", 2),
        ("0:1 0:2", 2),
        ("3", 2),
        ("1:nan", 2),
        ("-1:2", 2),
        ("1:1e50", 2),
        ("1:2:3", 2),
    ):
        small.words(tmp_path)
        changed(tmp_path / "sites/north.csv", lambda text, pair=pair: text.replace("0:1 3:0.5", pair))  # type: ignore[misc]
        first(f"sites/north.csv, line {line}, column text: found '{pair.split()[-1]}', expected index:value", tmp_path)


def test_thousands_of_problems_are_counted_and_some_are_told(tmp_path: Path) -> None:
    columns = {f"f{j}": ["x"] * 700 for j in range(30)} | {"y": ["0"] * 700}
    write_table(tmp_path / "one.csv", columns)
    inputs = Inputs(tuple(f"f{j}" for j in range(30)))
    declare(tmp_path, Declaration("many", "*.csv", inputs=inputs, labels=LabelColumns("exact", ("0", "1"), "y")))
    with pytest.raises(DataError) as error:
        read_sites(read_declaration(tmp_path)).check()
    head, *lines = str(error.value).splitlines()
    assert head == "many: 21,000 problems; nothing was trained or written"
    assert len(lines) <= 70
    assert lines[-1].strip().startswith("and ")


def test_all_sites_are_looked_at(tmp_path: Path) -> None:
    small.candidates(tmp_path)
    for site in ("north", "south"):
        changed(tmp_path / f"sites/{site}.csv", lambda text: text.replace(",f,", ",x,", 1))
        changed(tmp_path / f"test/{site}.csv", lambda text: text.replace("cat", "cot"))
    assert len(told(tmp_path)) == 6


def test_problems_that_are_alike() -> None:
    problems = Problems()
    for row in range(8):
        problems.add(Path("a.csv"), row, "c", "x", "y", "z")
    problems.add(Path("a.csv"), None, None, "x", "y", "z")
    assert len(problems) == 9
    assert problems.lines()[4:] == [
        "a.csv, line 4, column c: found x, expected y; z",
        "a.csv: 3 more like the last 5",
        "a.csv: found x, expected y; z",
    ]
