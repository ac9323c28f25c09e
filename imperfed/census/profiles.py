"""Profiles of tables without a declaration: every column of every file, read once.

Columns of many different numbers, which most large tables consist of, are only counted; the cells of all others are
read as text, as they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.census.columns import BLANK_WORDS, CODE, MOST_NUMBERS, Column, kept
from imperfed.data.files.cells import NUMBER, encoded, word
from imperfed.data.files.dialect import COMMA, Dialect, find_decimal, find_delimiter
from imperfed.data.files.memory import MemoryTable, Source
from imperfed.data.files.number_cells import seconds
from imperfed.data.files.problems import LINED, Problems, shown
from imperfed.data.files.table import read_table
from imperfed.data.files.text import filled_rows
from imperfed.data.files.undeclared import UndeclaredText

SAMPLE = 4 * MOST_NUMBERS
"""The number of rows in which a column of many different numbers shows itself as one."""
FIRST = 16
"""The number of values by which most columns of words show themselves as such."""


def profile(
    files: Iterable[Source], problems: Problems, texts: dict[Source, UndeclaredText] | None = None
) -> list[dict[str, Column]]:
    """Return the columns of every file, in the order of the file; note files that cannot be read.

    `texts`: takes text files as they were read, for those who read them next.
    """
    import pyarrow

    profiles = []
    for path in files:
        try:
            columns = read_columns(path, texts)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            _note(path, str(error).partition("\n")[0], problems)
        else:
            profiles.append(dict(_looks(columns)))
    return profiles


def _looks(columns: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    """Yield what every column holds; one whose cells are no numbers, text or dates, such as structs, is left out."""
    for name, values in columns.items():
        column = _many(name, values) if isinstance(values, np.ndarray) else _look(name, values)
        if column is not None:
            yield name, column


def read_columns(path: Source, texts: dict[Source, UndeclaredText] | None = None) -> dict[str, Any]:
    """Return all columns of a table: of many different numbers an array, of others in text files their text."""
    from pyarrow import parquet

    if isinstance(path, MemoryTable):
        columns = {name: column for name, column in path.columns.items() if not isinstance(column, np.ndarray)}
    elif path.suffix.lower() == ".parquet":
        table = parquet.read_table(path)
        columns = {name.strip(): column for name, column in zip(table.column_names, table.columns, strict=True)}
    else:
        text, columns = _read_text(path)
        if texts is not None:
            texts[path] = text
        return columns
    return columns | {name: many for name, column in columns.items() if (many := _many_numbers(column)) is not None}


# -- text files --------------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> tuple[UndeclaredText, dict[str, Any]]:
    """Return a text file, and its columns as `read_columns` does."""
    import pyarrow
    from pyarrow import csv as arrow_csv

    delimiter = find_delimiter(path)
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Words for blanks are no nulls here: a column that has any is text.
    typed = arrow_csv.read_csv(
        path, parse_options=parse, convert_options=arrow_csv.ConvertOptions(null_values=[""], strings_can_be_null=False)
    )
    filled = filled_rows(typed.columns)
    typed = typed if filled is None else typed.filter(filled)
    columns = dict(zip(typed.column_names, typed.columns, strict=True))  # of columns with one name, the last
    numbers = {name: many for name, column in columns.items() if (many := _many_numbers(column)) is not None}
    written = {}
    rest = [n for n, column in columns.items() if n not in numbers and not pyarrow.types.is_string(column.type)]
    if rest:  # as they are written: 007, 1.0, true, a date
        once = len(columns) == typed.num_columns
        convert = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(rest, pyarrow.string()), include_columns=rest if once else []
        )
        again = arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)
        again = again if filled is None else again.filter(filled)
        text = dict(zip(again.column_names, again.columns, strict=True))
        written = {name: text[name] for name in rest}
    file = UndeclaredText(path, delimiter, tuple(typed.column_names), columns, written)
    columns = columns | written
    if not any(many.dtype.kind == "f" for many in numbers.values()):
        columns |= _with_points({n: column for n, column in columns.items() if n not in numbers}, delimiter)
    return file, {name.strip(): numbers.get(name, column) for name, column in columns.items()}


def _many_numbers(column: Any) -> npt.NDArray[Any] | None:
    """Return a column with more different numbers than are remembered, and no blank, as an array; None if it is not."""
    from pyarrow import types

    if not (types.is_integer(column.type) or types.is_floating(column.type)) or column.null_count:
        return None
    values: npt.NDArray[Any] = column.to_numpy()
    many = len(np.unique(values[:SAMPLE])) > MOST_NUMBERS and bool(np.isfinite(values).all())
    return values if many else None


def _with_points(text: dict[str, Any], delimiter: str) -> dict[str, Any]:
    """Return columns of text with decimal points, if the numbers of the file have decimal commas."""
    from pyarrow import compute

    commas = {}
    for name, column in text.items():
        words = [value for value in column.unique().to_pylist() if value and value.lower() not in BLANK_WORDS]
        right = sum(1 for value in words if NUMBER.fullmatch(value) or COMMA.fullmatch(value))
        if words and right > 0.5 * len(words):
            commas[name] = words
    if find_decimal(commas.values(), delimiter) == ".":
        return text
    return text | {name: compute.replace_substring(text[name], ",", ".") for name in commas}


# -- one column --------------------------------------------------------------------------------------------------------


def _look(name: str, values: Any) -> Column | None:
    import pyarrow
    from pyarrow import compute, types

    lists = types.is_list(values.type) or types.is_large_list(values.type)
    cells = _as_text(compute.list_flatten(values) if lists else values)
    if cells is None:
        return None
    text = compute.utf8_trim_whitespace(cells)
    filled = text.filter(compute.fill_null(compute.not_equal(text, ""), False))
    distinct, times = filled.value_counts().flatten()
    rows, blanks = len(values), 0 if lists else len(values) - len(filled)
    unique = len(distinct) == rows - blanks and not lists
    numeric, odd = _are_numbers(distinct), 0
    if not numeric:
        wrong = compute.invert(compute.match_substring_regex(distinct, f"^(?:{NUMBER.pattern})$"))
        odd = compute.sum(times.filter(wrong), min_count=0).as_py()
    column = Column(name, rows, blanks, numeric, odd, lists, unique, kept(distinct.to_pylist(), numeric))
    if numeric and compute.any(compute.match_substring_regex(distinct, CODE)).as_py():
        column = replace(column, codes=True)
    lower = compute.utf8_lower(distinct)
    words = distinct.filter(compute.is_in(lower, value_set=pyarrow.array(sorted(BLANK_WORDS)))).to_pylist()
    return _without_blank_words(column, filled, words) if words and not lists else column


def _as_text(cells: Any) -> Any:
    """Return cells as the words as which they are read; None if they are no numbers, text, dates or durations."""
    import pyarrow
    from pyarrow import types

    plain = cells.cast(cells.type.value_type) if types.is_dictionary(cells.type) else cells
    if types.is_boolean(plain.type):
        plain = plain.cast(pyarrow.int8())  # 1 and 0, as cells are read
    if types.is_duration(plain.type):
        plain = seconds(plain)
    if types.is_binary(plain.type) or types.is_large_binary(plain.type):
        try:
            return plain.cast(pyarrow.string())
        except pyarrow.ArrowInvalid:  # no UTF-8, such as pictures
            return None
    if types.is_date(plain.type) or types.is_timestamp(plain.type) or types.is_time(plain.type):
        codes, values = encoded(plain)
        return pyarrow.array([*map(word, values.to_pylist()), None], pyarrow.string()).take(pyarrow.array(codes))
    words = types.is_string(plain.type) or types.is_large_string(plain.type) or types.is_string_view(plain.type)
    numbers = types.is_integer(plain.type) or types.is_floating(plain.type) or types.is_decimal(plain.type)
    return plain.cast(pyarrow.string()) if words or numbers or types.is_null(plain.type) else None


def _are_numbers(distinct: Any) -> bool:
    """Return whether all values are numbers; also if there are none, since other files may have numbers there."""
    import pyarrow
    from pyarrow import compute

    try:  # a few values first, because every value that cannot be converted takes its time
        for values in (distinct[:FIRST], distinct):
            compute.cast(values, pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return False
    return True


def _many(name: str, values: npt.NDArray[Any]) -> Column:
    """Return the profile of many different numbers; only whole numbers can identify rows."""
    whole = values.dtype.kind in "iu" or bool((np.floor(values) == values).all())
    unique = whole and len(np.unique(values)) == len(values)
    return Column(name, len(values), 0, True, 0, False, unique, None)


def _without_blank_words(column: Column, filled: Any, words: Sequence[str]) -> Column:
    """Return the column as one of numbers if all its other cells are these words, which stand for a blank."""
    from pyarrow import compute

    blank = filled.filter(compute.is_in(filled, value_set=_strings(words)))
    if len(blank) < column.odd:
        return column
    numbers = frozenset(value for value in column.values or () if value not in words)
    if not all(NUMBER.fullmatch(value) for value in numbers):
        return column
    counts = Counter(blank.to_pylist())
    return replace(
        column,
        blanks=column.blanks + counts.total(),
        numeric=True,
        odd=0,
        values=kept(numbers, True),
        missing=dict(sorted(counts.items())),
    )


def _strings(words: Sequence[str]) -> Any:
    import pyarrow

    return pyarrow.array(words, pyarrow.string())


# -- what cannot be read -----------------------------------------------------------------------------------------------


def _note(path: Source, error: str, problems: Problems) -> None:
    """Note why a file cannot be read: with lines, as the reader of sites does, or else in the words of `error`."""
    noted = Problems()
    read_table(path, {}, Dialect(), noted, slowly=True)
    if not noted and isinstance(path, Path) and path.suffix.lower() in LINED:
        _note_encoding(path, noted)
    if not noted:
        noted.add(path, None, None, error, "a table", "write it again")
    problems.take(noted)


def _note_encoding(path: Path, problems: Problems) -> None:
    """Note the first line that is not UTF-8, if there is one."""
    text = path.read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line, wrong = text[: error.start].count(b"\n") + 1, shown(text[error.start : error.end])
        problems.add(path, line, None, wrong, "UTF-8 text", "save the file as UTF-8; in Excel: CSV UTF-8")


def values_by_site(files: Sequence[Source], columns: Sequence[dict[str, Column]], name: str, site: str) -> list[int]:
    """Count the distinct values of a column per site; `site` names the column of the site in one file for all sites."""
    if not site:
        return [len(part[name].values or ()) for part in columns]
    import pyarrow

    both = {key: values for key, values in read_columns(files[0]).items() if key in (name, site)}
    counted = pyarrow.table(both).group_by(site).aggregate([(name, "count_distinct")])
    return [int(n) for n in counted[f"{name}_count_distinct"].to_pylist()]
