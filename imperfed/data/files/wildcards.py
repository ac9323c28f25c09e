"""Patterns such as `w*` in place of the names of columns, looked up in the headers of the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from imperfed.data.files.blanks import ANY, matches
from imperfed.data.files.declaration import Declaration
from imperfed.data.files.dialect import Dialect
from imperfed.data.files.labelled import label_columns, truth_columns
from imperfed.data.files.problems import LINED, Problems, listed, nearest, shown


def has_patterns(declaration: Declaration) -> bool:
    """Return whether inputs are named by patterns."""
    return any(ANY in name for name in declaration.inputs.numeric)


def name_columns(declaration: Declaration, problems: Problems) -> Declaration:
    """Return the declaration with names in place of patterns; unchanged if there is no file to look them up in."""
    if not has_patterns(declaration):
        return declaration
    found = [name for path in _files(declaration) for name in _columns(path, declaration)]
    return _in_full(declaration, list(dict.fromkeys(found)), problems) if found else declaration


def _in_full(declaration: Declaration, columns: Sequence[str], problems: Problems) -> Declaration:
    taken = _taken(declaration)
    every = expanded(declaration.inputs.numeric, [name for name in columns if name not in taken])
    for pattern in declaration.inputs.numeric:
        if ANY in pattern and pattern in every:
            fix = nearest(pattern.replace(ANY, ""), columns)
            problems.add(declaration.file, None, "inputs.numeric", shown(pattern), "a pattern of some columns", fix)
    return replace(declaration, inputs=replace(declaration.inputs, numeric=every))


def expanded(names: Iterable[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return names in place of patterns: of all columns that fit, in the order of their numbers and letters.

    A name that is a column itself is no pattern, and a pattern that no column fits stays as it is.
    """
    every: dict[str, None] = {}
    for name in names:
        fitting = [] if name in columns or ANY not in name else [c for c in columns if matches(name, c)]
        every |= dict.fromkeys(sorted(fitting, key=_natural) or [name])
    return tuple(every)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts w2 before w10, the same at every site whatever the order of its columns."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _taken(declaration: Declaration) -> set[str]:
    """Return the columns that have another role."""
    labels, attribute = declaration.labels, declaration.attribute
    own = () if attribute is None else (attribute.column, attribute.truth)
    roles = declaration.id, declaration.group, declaration.site_column
    return {*roles, *own, *declaration.inputs.categorical, *label_columns(labels), *truth_columns(labels)}


def declared_columns(declaration: Declaration) -> list[str]:
    """Return all columns that a declaration names, whatever for."""
    inputs = declaration.inputs
    named = [*inputs.numeric, *inputs.categorical, inputs.image, inputs.sparse, inputs.array, *_taken(declaration)]
    return sorted(set(filter(None, named)))


def _files(declaration: Declaration) -> list[Path]:
    """Return the files of the sites; without any, as at a coordinator, those of the server."""
    from imperfed.data.files.reading import places

    sites = [path for path in places(declaration.sites, declaration.folder).values() if path.is_file()]
    server = [declaration.folder / path for path in (declaration.public, declaration.trusted) if path]
    return sites or [path for path in server if path.is_file()]


def _columns(path: Path, declaration: Declaration) -> list[str]:
    """Return the names of a file's columns; none if it cannot be read, which its reader will report."""
    import pyarrow
    from pyarrow import parquet

    if path.suffix.lower() in LINED:
        from imperfed.data.files.text import read_header

        return read_header(path, Dialect.of(declaration, "").delimiter, {}, Problems())[0] or []
    try:
        return list(parquet.read_schema(path).names) if path.suffix.lower() == ".parquet" else []
    except (pyarrow.ArrowException, OSError):
        return []


def refuse_patterns(declaration: Declaration) -> str:
    """Return why real sites cannot look patterns up; empty if there are none."""
    patterns = [name for name in declaration.inputs.numeric if ANY in name]
    return f"inputs.numeric has {listed(patterns)}: no site's file is here to look names up in; write them out" * bool(
        patterns
    )
