"""Reading CSV files: by pyarrow in blocks if the file is sound, and row by row if something is wrong.

The fast way keeps no line numbers and stops at the first cell that it cannot convert. The slow way keeps line numbers,
so that every problem is reported with the line that an editor shows. Rows of which every cell is empty, which
spreadsheets write below a table, are no rows; only the slow way can leave them out.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.data.files.dialect import DELIMITERS, Dialect, find_decimal, find_delimiter
from imperfed.data.files.problems import Problems, shown
from imperfed.data.files.table import FileTable, Role, Wanted, no_rows, note_absent

UTF16 = (b"\xff\xfe", b"\xfe\xff")
WORKBOOK = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How files of a spreadsheet begin, new and old, whatever their names end in."""
SAVE_AS_CSV = "in the spreadsheet, save each sheet as CSV (UTF-8)"
LONGEST_CELL = (1 << 31) - 1


def read_text(
    path: Path, wanted: Wanted, dialect: Dialect, problems: Problems, spare: frozenset[str], slowly: bool
) -> FileTable | None:
    """Return the wanted columns of a CSV file, read the fast way if possible, unless `slowly`."""
    with path.open("rb") as file:
        begins = file.read(4)
    if begins[:2] in UTF16:
        problems.add(path, None, None, "UTF-16", "UTF-8 text", "save the file as UTF-8; in Excel: CSV UTF-8")
        return None
    if begins in WORKBOOK:
        problems.add(path, None, None, "a spreadsheet", "text", SAVE_AS_CSV)
        return None
    header, delimiter = read_header(path, dialect.delimiter, wanted, problems)
    if header is None or _has_other_delimiter(path, header, wanted, delimiter, problems):
        return None
    names = note_absent(path, wanted, header, problems, spare)
    columns: dict[str, Role] = {name: wanted[name] for name in names}
    table = _read_fast(path, columns, delimiter, dialect) if columns and not slowly else None
    if table is None:
        table = read_slowly(path, columns, delimiter, problems, dialect.decimal)
    if not table.rows:
        if not problems:
            no_rows(path, problems)
        return None
    return table


def read_header(path: Path, delimiter: str, wanted: Wanted, problems: Problems) -> tuple[list[str] | None, str]:
    """Return the names of the columns, from the first row that is not blank, and the delimiter, found if empty."""
    delimiter = delimiter or find_delimiter(path, wanted)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        try:
            csv.field_size_limit(LONGEST_CELL)
            row = next(row for row in csv.reader(lines, delimiter=delimiter) if row)
            return [name.strip() for name in row], delimiter
        except StopIteration:
            no_rows(path, problems)
        except csv.Error as error:
            problems.add(path, 1, None, str(error), "a header", "name the columns in the first line")
    return None, delimiter


def _has_other_delimiter(path: Path, header: list[str], wanted: Wanted, delimiter: str, problems: Problems) -> bool:
    """Return whether the header has wanted names separated by another delimiter, and note it if so."""
    for mark in DELIMITERS if len(header) == 1 and header[0] not in wanted else ():
        names = [name.strip() for name in header[0].split(mark)]
        if len(names) > 1 and any(name in wanted for name in names):
            found, expected = (f"cells separated by {shown(between)}" for between in (mark, delimiter))
            fix = "leave `delimiter` out of federation.toml: it is found file by file"
            problems.add(path, 1, None, found, expected, fix if path.suffix.lower() == ".csv" else "write tabs")
            return True
    return False


def _read_fast(path: Path, columns: dict[str, Role], delimiter: str, dialect: Dialect) -> FileTable | None:
    """Return all columns at once; None if any row or cell is malformed, or if a row seems to be empty."""
    # In files with commas between cells a number such as 1,500 is quoted, and may be a thousand and a half.
    marks = [dialect.decimal] if dialect.decimal else [".", *(() if delimiter == "," else ",")]
    numeric = "number" in columns.values()
    for decimal in marks if numeric else marks[:1]:
        table = _parsed(path, columns, delimiter, decimal, dialect.missing)
        if table is not None and filled_rows(table.columns) is None:
            return FileTable(path, table.num_rows, {n: table[n] for n in columns}, None, delimiter, decimal)
    return None


def _parsed(path: Path, columns: dict[str, Role], delimiter: str, decimal: str, missing: Sequence[str]) -> Any:
    import pyarrow
    from pyarrow import csv as arrow_csv

    types = {
        "number": pyarrow.float64(),
        "code": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "text": pyarrow.string(),
    }
    convert = arrow_csv.ConvertOptions(
        column_types={name: types[role] for name, role in columns.items()},
        include_columns=[*columns],
        null_values=["", *missing],
        strings_can_be_null=False,
        decimal_point=decimal,
    )
    try:
        return arrow_csv.read_csv(path, None, arrow_csv.ParseOptions(delimiter=delimiter), convert)
    except (pyarrow.ArrowException, OSError, ValueError):
        return None


def filled_rows(columns: Sequence[Any]) -> Any:
    """Return which rows have a value in any of these columns, as a mask; None if all have."""
    from pyarrow import compute, string, types

    empty: Any = None
    for column in columns:
        plain = column.cast(string()) if types.is_dictionary(column.type) else column
        text = types.is_string(plain.type)
        none = compute.fill_null(compute.equal(plain, ""), True) if text else compute.is_null(plain)
        empty = none if empty is None else compute.and_(empty, none)
        if not compute.any(empty).as_py():
            return None
    return None if empty is None else compute.invert(empty)


def read_slowly(path: Path, columns: Wanted, delimiter: str, problems: Problems, decimal: str = "") -> FileTable:
    """Return all columns as text, with the lines at which rows begin; rows that are ragged or not UTF-8 are noted."""
    import pyarrow

    lines: list[int] = []
    cells: dict[str, list[str]] = {name: [] for name in columns}
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        at: dict[str, int] | None = None
        end = width = 0
        try:
            for row in rows:
                begin, end = end + 1, rows.line_num
                if not row:
                    continue
                if at is None:
                    names = [name.strip() for name in row]
                    at, width = {name: names.index(name) for name in columns}, len(row)
                elif len(row) != width:
                    found, expected = f"{len(row)} cells", f"{width} as in the header"
                    problems.add(path, begin, None, found, expected, "add or remove cells, or quote the row's text")
                elif any(row) and _decoded(row, at, path, begin, problems):
                    lines.append(begin)
                    for name, place in at.items():
                        cells[name].append(row[place])
        except csv.Error as error:
            problems.add(path, end + 1, None, str(error), "rows of cells", "fix the quotes of this row")
    decimal = decimal or find_decimal([cells[name] for name, role in columns.items() if role == "number"], delimiter)
    text = {name: pyarrow.array(values, pyarrow.string()) for name, values in cells.items()}
    return FileTable(path, len(lines), text, np.array(lines, np.int64), delimiter, decimal)


def _decoded(row: list[str], at: dict[str, int], path: Path, line: int, problems: Problems) -> bool:
    """Return whether the wanted cells of a row are UTF-8; others are noted."""
    valid = True
    for name, place in at.items():
        raw = row[place].encode(errors="surrogateescape")
        try:
            raw.decode()
        except UnicodeDecodeError:
            problems.add(path, line, name, shown(raw), "UTF-8 text", "save the file as UTF-8; in Excel: CSV UTF-8")
            valid = False
    return valid
