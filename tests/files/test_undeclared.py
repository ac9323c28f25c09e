"""Files that `inspect` read for its guesses are not read again, and hold what a second reading would find."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow.csv
import pytest
import torch

from imperfed.census.guess import guess
from imperfed.census.inspect import declaration_of, inspect, read_checked
from imperfed.core.errors import DataError
from imperfed.data.files.dialect import Dialect
from imperfed.data.files.reading import read_sites
from imperfed.data.files.table import Wanted

WANTED: Wanted = {"id": "text", "age": "number", "dose": "number", "grade": "code", "label": "code"}
NOTHING: frozenset[str] = frozenset()


def write(folder: Path, dose: str = "{:.3f}", header: str = "id,age,dose,grade,label") -> Path:
    folder.mkdir()
    for site in ("a", "b"):
        lines = (
            f"{site}{i},{20 + i % 60},{dose.format(i * 11 / 7)},{'low' if i % 3 else 'high'},{i % 2}"
            for i in range(1200)
        )
        (folder / f"{site}.csv").write_text("\n".join((header, *lines)) + "\n")
    return folder


def test_each_column_is_parsed_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "f")
    with patch.object(pyarrow.csv, "read_csv", wraps=pyarrow.csv.read_csv) as read:
        inspect(folder)
    assert read.call_count == 4  # both files, and the text of `age` and `label`, whose numbers are few


def test_rows_of_empty_cells_are_none_however_a_file_is_read(tmp_path: Path) -> None:
    """Spreadsheets write them below a table, and where a row was emptied."""
    folder, clean = write(tmp_path / "f"), write(tmp_path / "clean")
    for path in folder.glob("*.csv"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:4], ",,,,", *lines[4:], ",,,,", ",,,,"]) + "\n")
    declaration, guessed = declaration_of(folder)
    assert (declaration.id, declaration.inputs.fill) == ("id", "")
    for reading in (read_checked(declaration, guessed), read_sites(declaration).check()):
        for site, like in zip(reading.sites, read_sites(declaration_of(clean)[0]).check().sites, strict=True):
            assert site.rows.ids() == like.rows.ids()
            assert torch.equal(site.rows.x, like.rows.x)
            assert site.rows.place(3)[1] == 6  # the line of the fourth row, below the empty one


def test_the_rows_are_those_of_a_second_reading(tmp_path: Path) -> None:
    declaration, guessed = declaration_of(write(tmp_path / "f"))
    once, again = read_checked(declaration, guessed), read_sites(declaration).check()
    assert guessed is not None
    assert len(guessed.files) == len(once.sites) == 2
    for first, second in zip(once.sites, again.sites, strict=True):
        assert torch.equal(first.rows.x, second.rows.x)
        assert first.rows.ids() == second.rows.ids()
        assert first.rows.labels is not None
        assert second.rows.labels is not None
        assert torch.equal(first.rows.labels.values, second.rows.labels.values)


@pytest.mark.parametrize(
    ("dose", "dialect", "wanted"),
    [
        ("0x{:.0f}", Dialect(), WANTED),  # a whole number to pyarrow alone
        ("n/a", Dialect(missing=("n/a",)), WANTED),
        ('"{:.0f},5"', Dialect(decimal=","), WANTED),
        ("{:.3f}", Dialect(delimiter=";"), WANTED),
        ("{:.3f}", Dialect(decimal=","), WANTED),
        ("{:.3f}", Dialect(), {**WANTED, "weight": "number"}),
        ("{:.3f}", Dialect(), {**WANTED, "dose": "text"}),  # as it is written, which numbers do not say
    ],
)
def test_what_may_differ_is_read_again(tmp_path: Path, dose: str, dialect: Dialect, wanted: Wanted) -> None:
    files = guess(write(tmp_path / "f", dose)).files
    assert all(file.table(wanted, dialect, NOTHING) is None for file in files.values())


def test_names_that_are_not_plain_are_read_again(tmp_path: Path) -> None:
    files = guess(write(tmp_path / "f", header="id,age, dose,grade,label")).files
    assert all(file.table(WANTED, Dialect(), NOTHING) is None for file in files.values())


def test_hexadecimals_are_found_as_before(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", "0x{:.0f}")
    with pytest.raises(DataError, match=r"a\.csv, line 2, column dose: found '0x0', expected a finite number"):
        inspect(folder)
