"""Damaged files: whatever is in them, the error is ours, and it names the file and, where there is one, the row.

`make test` tries some hundreds of examples, the same every time; `make fuzz` more than ten thousand new ones.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Inputs, LabelColumns, SensitiveColumn, read_declaration
from imperfed.data.files.reading import places, read_sites
from imperfed.data.files.rules import declarable
from imperfed.data.labelling import LabelConfig
from imperfed.data.own_files import federate_files
from imperfed.data.split import SplitConfig
from tests.support import small_files as small
from tests.support.written_files import declare

EXAMPLES = int(os.environ.get("IMPERFED_FUZZ", "25"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="IMPERFED_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)

FORMS: dict[str, Callable[[Path], Path]] = {
    "csv": small.candidates,
    "tsv": lambda folder: small.candidates(folder, "tsv"),
    "parquet": lambda folder: small.candidates(folder, "parquet"),
    "one file": small.annotated,
    "one parquet": lambda folder: small.annotated(folder, "parquet"),
    "npz": small.arrays,
    "folders": small.pictures,
    "paths": small.paths,
    "sparse": small.words,
    "sparse parquet": lambda folder: small.words(folder, "parquet"),
}


@pytest.fixture(scope="module", params=FORMS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undamaged federation."""
    return FORMS[request.param](tmp_path_factory.mktemp("whole"))


OF_THE_FILE = (
    "no such column",
    "columns of this name",
    "of shape",
    "one value per row",
    "no file",
    " rows",
    "a column of",
)
"""Found in a column or a key as a whole, not in one row of it."""


def read(folder: Path) -> None:
    """All of a federation, as far as training would get to see it; every problem has its place."""
    found = read_sites(read_declaration(folder))
    for problem in found.problems.kept:
        assert str(problem.file).startswith(str(folder))
        whole = problem.column is None or any(words in problem.found for words in OF_THE_FILE)
        assert whole or problem.row is not None or problem.file.suffix in ("", ".png", ".toml"), problem
    declaration = found.declaration
    files = places(declaration.sites, folder)
    assert found.problems or declaration.site_column or [site.name for site in found.sites] == [*files]  # none is lost
    federate_files(found.check(), SplitConfig(), LabelConfig(), 0)


def looked_at(folder: Path) -> str:
    """What is said of a federation; nothing where all is well."""
    try:
        read(folder)
    except DataError as error:
        said = str(error)
        assert str(folder) in said or "cannot serve both training and testing" in said
        return said
    return ""


def copies(folder: Path) -> Iterator[Path]:
    """A copy to be damaged, gone afterwards."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(shutil.copytree(folder, Path(place) / "copy"))


ODD = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"',
    b"\r",
    b"\n",
    b",",
    b"|",
    b"1e999",
    b"nan",
    "\u2028".encode(),
    b"\xed\xa0\x80",
)
at = st.integers(0, 1 << 20)
damage = st.one_of(
    st.tuples(st.just("flip"), at, st.integers(1, 255)),
    st.tuples(st.just("insert"), at, st.sampled_from(ODD)),
    st.tuples(st.just("cut"), at, st.integers(1, 400)),
    st.tuples(st.just("end"), at, st.just(0)),
    st.tuples(st.just("twice"), at, st.integers(1, 60)),
    st.tuples(st.just("as"), at, st.sampled_from(("utf-16", "utf-16-le", "latin-1", "utf-8-sig"))),
)


def damaged(data: bytes, how: tuple[str, int, object]) -> bytes:
    """The bytes after one mishap."""
    kind, place, what = how
    place %= len(data) + 1
    if kind == "flip" and place < len(data):
        assert isinstance(what, int)
        return data[:place] + bytes([data[place] ^ what]) + data[place + 1 :]
    if kind == "insert":
        assert isinstance(what, bytes)
        return data[:place] + what + data[place:]
    if kind == "cut":
        assert isinstance(what, int)
        return data[:place] + data[place + what :]
    if kind == "twice":
        assert isinstance(what, int)
        return data[:place] + data[place : place + what] * 2 + data[place + what :]
    if kind == "as":
        return data.decode("latin-1").replace("a", "ä").encode(str(what))
    return data[:place]


@fuzz
@given(which=st.integers(0, 100), mishaps=st.lists(damage, min_size=1, max_size=3))
def test_damaged_bytes(whole: Path, which: int, mishaps: list[tuple[str, int, object]]) -> None:
    for folder in copies(whole):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path = files[which % len(files)]
        data = path.read_bytes()
        for how in mishaps:
            data = damaged(data, how)
        path.write_bytes(data)
        looked_at(folder)


JUNK = ("???", "cat dog", "1,5", "--", "0x1F", "1_000", "\N{SNOWMAN}", "=1+1", "inf", "-nan", "1e99")


@fuzz
@given(
    row=st.integers(0, 5), column=st.sampled_from(("age", "sex", "animal", "true", "race")), junk=st.sampled_from(JUNK)
)
def test_a_bad_cell_is_found_where_it_is(
    row: int, column: str, junk: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for folder in copies(once(tmp_path_factory)):
        path = folder / "sites/south.csv"
        lines = path.read_text().splitlines()
        cells, place = lines[row + 1].split(","), lines[0].split(",").index(column)
        cells[place] = f'"{junk}"'
        lines[row + 1] = ",".join(cells)
        path.write_text("\n".join(lines))
        assert re.search(rf"south\.csv, line {row + 2}, column {column}: found ", looked_at(folder))


def once(factory: pytest.TempPathFactory) -> Path:
    """A federation of CSV files, written the first time."""
    folder = factory.getbasetemp() / "cells"
    return folder if folder.exists() else small.candidates(folder)


cells = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(("", "0", "1", "-1", "1.0", "a|b", "cat"))


@fuzz
@given(table=st.lists(st.lists(cells, max_size=6), max_size=8), end=st.sampled_from(("\n", "\r\n", "\r")))
def test_any_cells_at_all(table: list[list[str]], end: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    for folder in copies(once(tmp_path_factory)):
        lines = [(folder / "sites/south.csv").read_text().splitlines()[0]] + [",".join(row) for row in table]
        (folder / "sites/south.csv").write_bytes(end.join(lines).encode())
        assert "south.csv" in looked_at(folder) or not table


kinds = st.sampled_from(("u1", "i8", "f4", "f8", "?", "U3", "c16", "M8[s]", "S2"))
shapes = st.lists(st.integers(0, 7), max_size=4)


@fuzz
@given(name=st.sampled_from(("x", "sets", "y", "more")), kind=kinds, shape=shapes)
def test_any_arrays_at_all(name: str, kind: str, shape: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp() / "arrays"
    for folder in copies(base if base.exists() else small.arrays(base)):
        with np.load(folder / "north.npz") as archive:
            arrays = dict(archive)
        arrays[name] = np.zeros(shape, kind)
        np.savez(folder / "north.npz", **arrays)
        said = looked_at(folder)
        assert "north.npz" in said or not said or name == "x"


columns = st.sampled_from(
    ("id", "age", "sex", "animal", "true", "race", "x", "sets", "y", "file", "text", "image", "class")
)
some = st.lists(columns, max_size=3, unique=True).map(tuple)
optional = st.just("") | columns
labels = st.builds(
    LabelColumns,
    kind=st.sampled_from(sorted(declarable())),
    classes=st.sampled_from((("cat", "dog", "lynx"), ("0", "1"), ("cat", "dog"))),
    column=optional,
    columns=st.just(()) | some,
    truth=optional | some,
)
inputs = st.one_of(
    st.builds(Inputs, numeric=some, categorical=st.dictionaries(columns, st.just(("f", "m")), max_size=1)),
    st.builds(Inputs, image=optional, size=st.just((4, 4)), channels=st.sampled_from((1, 3))),
    st.builds(Inputs, sparse=columns, features=st.just(5)),
    st.builds(Inputs, array=columns, standardise=st.sampled_from((None, True))),
)
attributes = st.none() | st.builds(SensitiveColumn, column=columns, values=st.just(("a", "b")), truth=optional)


@fuzz
@given(
    inputs=inputs,
    labels=labels,
    attribute=attributes,
    id=optional,
    group=optional,
    site_column=optional,
    test=st.booleans(),
)
def test_any_column_in_any_place(whole: Path, test: bool, site_column: str, **said: Any) -> None:
    for folder in copies(whole):
        usual = read_declaration(folder)
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".tsv", ".parquet", ".npz"))
        one = str(files[0].relative_to(folder)) if files else "sites/north"
        declared = replace(usual, sites=one if site_column else usual.sites, site_column=site_column, **said)
        declare(folder, replace(declared, test=usual.test if test else ""))
        looked_at(folder)


@fuzz
@given(text=st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_declaration_at_all(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "declared"
    folder.mkdir(exist_ok=True)
    (folder / "federation.toml").write_bytes(text.encode())
    with pytest.raises(DataError, match=r"federation\.toml"):
        read(folder)
