"""Arguments that name columns: by text or, as pandas has them, by whole numbers and by tuples."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from imperfed.core.errors import UsageError

OneColumn = str | int | tuple[Any, ...]
Columns = OneColumn | Iterable[Any]
ONE = ("site", "id", "group", "attribute")
"""Arguments that name one column."""
SEVERAL = ("label", "truth", "inputs")
"""Arguments that name one column or several."""
DESCRIBED = ("attribute", "inputs")
"""Those of them that may also be dicts."""


def with_names(described: Mapping[str, Any], columns: Container[str]) -> dict[str, Any]:
    """Return the arguments with columns by the names that tables have; refuse values that name none.

    `columns`: the columns of the tables, by which a tuple that is one name is told from several names.
    """
    known = dict(described)
    for key in {*ONE, *SEVERAL} & known.keys():
        if not (key in DESCRIBED and isinstance(known[key], Mapping)):
            known[key] = _named(key, known[key], columns)
    if isinstance(known.get("inputs"), str):
        known["inputs"] = [known["inputs"]]
    return known


def _named(argument: str, value: Any, columns: Container[str]) -> str | list[str]:
    if (name := _name(value, columns)) is not None:
        return name
    if argument == "inputs" and isinstance(value, np.ndarray):
        value = value.tolist()
    if argument in SEVERAL and _is_list(value):
        names = [name for one in value if (name := _name(one, columns)) is not None]
        if len(names) == len(value):
            return _once(argument, names)
    several = ", or a list of names" if argument in SEVERAL else ""
    fix = "add it to data, and hand over its name"
    if argument == "label":
        fix = "for arrays, hand over {site: (x, labels)}"
    raise UsageError(
        f"{argument}=...: found a value of type {type(value).__name__}, expected the name of a column of data"
        f"{several}; {fix}"
    )


def _once(argument: str, names: list[str]) -> list[str]:
    """Return the names; refuse an empty list, and names that occur twice."""
    if not names:
        raise UsageError(f"{argument}=[]: a list of no columns; name at least one, or leave {argument} out")
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"{argument}=...: found {twice!r} twice, expected every name once; leave one out")
    return names


def _name(value: Any, columns: Container[str]) -> str | None:
    """Return a name as tables have it: as text, without surrounding blanks; None if the value is no name."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    return str(value) if is_number or (isinstance(value, tuple) and str(value) in columns) else None


def _is_list(value: Any) -> bool:
    """Return whether a value is a list of names, such as the columns of a frame."""
    kinds = {base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] == "pandas"}
    return isinstance(value, list | tuple | set | frozenset) or "Index" in kinds
