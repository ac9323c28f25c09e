"""The declaration of tables in memory: what the caller says about their columns, and guesses about the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.census.columns import Column, merged
from imperfed.census.folder_layout import MemoryLayout
from imperfed.census.guess import guess_array, guess_rest
from imperfed.census.label_roles import BY_NAME, guess_one_column, guess_one_column_per_class
from imperfed.census.profiles import profile
from imperfed.census.roles import Look, guess_image
from imperfed.core.errors import UsageError
from imperfed.data.files.cells import canonical
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, non_defaults
from imperfed.data.files.memory import MemoryTable
from imperfed.data.files.problems import Problems, nearest
from imperfed.data.files.wildcards import expanded

Entries = dict[str, Any]
"""The keys of a federation.toml."""


def complete(entries: Entries, tables: Mapping[str, MemoryTable]) -> tuple[Entries, tuple[str, ...]]:
    """Return the entries with guesses for all that they leave open, and one sentence for every guess.

    `tables`: by the names of their sites; "" names one table for all sites.
    """
    look, stated = _look(tables), entries["inputs"]
    if "array" in stated:
        return {**entries, "labels": _array_labels(look, entries["labels"], tables)}, tuple(look.why)
    site = entries.get("site_column", "")
    if not all(site in table.columns for table in tables.values()):
        site = ""  # reading will say so, with all else that is wrong
    for name in _declared(entries):
        look.columns.pop(name, None)
    known = {**entries, "labels": _labels(look, entries["labels"], site)}
    if "attribute" in entries:
        known["attribute"] = _attribute(look, entries["attribute"])
    chosen = _chosen_inputs(look, stated)
    if chosen is None:
        labels = LabelColumns(classes=tuple(known["labels"]["classes"]))
        guessed = guess_rest(Declaration(site_column=site, labels=labels), look, guess_image(look)).declaration
        _refuse_no_inputs(guessed.inputs, look)
        rest = non_defaults(guessed)
    else:
        rest = {"inputs": chosen}
    known["inputs"] = {**rest["inputs"], **(stated if isinstance(stated, Mapping) else {})}
    return rest | known, tuple(look.why)


def _look(tables: Mapping[str, MemoryTable]) -> Look:
    """Return all columns, without roles."""
    layout, problems = MemoryLayout.of(tables), Problems()
    files = profile(layout.files, problems)
    problems.check("data")
    return Look.at(layout, merged(files), files, [])


def _declared(entries: Entries) -> list[str]:
    """Return the columns with a role other than label, input and sensitive attribute."""
    truth, attribute = entries["labels"].get("truth", ""), entries.get("attribute", {})
    columns = [entries.get(key, "") for key in ("site_column", "id", "group")]
    return [*columns, *([truth] if isinstance(truth, str) else truth), attribute.get("truth", "")]


# -- labels ------------------------------------------------------------------------------------------------------------


def _labels(look: Look, stated: Entries, site: str) -> Entries:
    """Return the label columns with their kind and classes."""
    if "columns" in stated:
        every = look.columns | look.scattered
        marked = [_find(every, name, "label", look) for name in stated["columns"]]
        _refuse_words(marked, stated)
        guessed = non_defaults(guess_one_column_per_class(look, marked))
        if stated.get("kind", "annotated") != "annotated" or _are_missing(guessed, stated):
            guessed.pop("uncertain", None)
        return {**guessed, **stated}
    return _one_column(look, _find(look.columns, stated["column"], "label", look), stated, site)


def _are_missing(guessed: Entries, stated: Entries) -> bool:
    """Return whether the caller says that all values which look uncertain mean a blank."""
    missing = stated.get("missing")
    if not isinstance(missing, list | tuple | set | frozenset):
        return False
    return {*map(canonical, guessed.get("uncertain", {}).get("values", ()))} <= {*map(canonical, missing)}


def _refuse_words(marked: Sequence[Column], stated: Entries) -> None:
    """Refuse a list of one column that holds classes: the columns of a list hold marks."""
    if len(marked) != 1 or {"missing", "uncertain"} & stated.keys():
        return
    (column,) = marked
    if column.known and not column.marks:
        raise UsageError(
            f"label=[{column.name!r}]: a list has one column per class, of 1, 0 and blanks, and this one holds other "
            f"values; for one column of classes write label={column.name!r}"
        )


def _one_column(look: Look, column: Column, stated: Entries, site: str) -> Entries:
    if stated.get("kind") == "positives":
        return _sets_of_positives(look, column, stated)
    if column.yes_no_or_blank and not {"kind", "classes", "separator"} & stated.keys():
        rest = {key: value for key, value in stated.items() if key != "column"}
        return {**non_defaults(guess_one_column_per_class(look, [column])), **rest}
    guessed = non_defaults(guess_one_column(look, column, site, BY_NAME))
    if "separator" in stated:
        names = {item.strip() for value in column.values or () for item in value.split(stated["separator"])}
        guessed |= {"kind": "candidates", "classes": sorted(names - {""})}
    elif stated.get("kind") in ("exact", "positive"):  # one class per row, whatever marks its name contains
        guessed["classes"] = sorted(column.values or (), key=float if column.numeric else str)
    return {**guessed, **stated}


def _sets_of_positives(look: Look, column: Column, stated: Entries) -> Entries:
    """Return how sets of which every class is present are read: their truth is no single class, so none is guessed."""
    separator = stated.get("separator") or column.separator() or "|"
    names = {item.strip() for value in column.values or () for item in value.split(separator)} - {""}
    look.take(column.name, f"labels: {column.name}, {len(names)} classes; all of a set are present")
    if alike := look.within(sorted(names)):
        look.take(alike.name, f"left out: {alike.name} has the values of the label")
    return {"classes": sorted(names), "separator": separator, **stated}


def _array_labels(look: Look, stated: Entries, tables: Mapping[str, MemoryTable]) -> Entries:
    """Return how arrays of labels are read."""
    matrices = [table.columns["labels"] for table in tables.values()]
    if not any(isinstance(part, np.ndarray) for part in matrices):
        look.columns.pop("truth", None)
        return _one_column(look, look.columns["labels"], stated, "")
    matrices = [part for part in matrices if isinstance(part, np.ndarray)]
    if "kind" not in stated:
        _refuse_column_vectors(matrices, [*tables.values()])
    kind, classes = guess_array(matrices)
    return {"kind": kind, "classes": classes, **stated}


def _refuse_column_vectors(matrices: Sequence[npt.NDArray[Any]], tables: Sequence[MemoryTable]) -> None:
    """Refuse matrices of one column without blanks, which are rather classes than marks of one class."""
    if all(part.shape[1:] == (1,) and part.dtype.kind in "iuf" and not np.isnan(part).any() for part in matrices):
        raise UsageError(
            f"{tables[0]}: labels of shape {matrices[0].shape}; for one class per row, hand over labels.ravel(), and "
            "for marks of one class, which is present or absent, kind='annotated'"
        )


def _find(columns: Mapping[str, Column], name: str, argument: str, look: Look) -> Column:
    if name in columns:
        return columns[name]
    for table, present in zip(look.layout.files, look.files, strict=True):
        if name not in present:
            raise UsageError(f"{argument}={name!r}: {table} has no such column; {nearest(name, columns)}")
    role = next((f" ({why})" for why in look.why if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", why)), "")
    raise UsageError(f"{argument}={name!r}: this column has another role already{role}; name it for one of them only")


# -- inputs ------------------------------------------------------------------------------------------------------------


def _refuse_no_inputs(inputs: Inputs, look: Look) -> None:
    """Refuse tables of which no column can be an input, with the reasons."""
    if inputs == Inputs():
        why = [sentence for sentence in look.why if sentence.startswith("left out: ")]
        vectors = [column.name for column in look.columns.values() if column.lists]
        fix = (
            f"for the vectors in {vectors[0]}, hand over {{site: (x, labels)}} with arrays"
            if vectors
            else "add columns of numbers or of a few words"
        )
        raise UsageError(f"data: no column can be an input ({'; '.join(why) or 'there is no other column'}); {fix}")


def _attribute(look: Look, stated: Entries) -> Entries:
    column = _find(look.columns, stated["column"], "attribute", look)
    del look.columns[column.name]
    return {"values": column.names(), "separator": column.separator() or "|", **stated}


def _chosen_inputs(look: Look, stated: Any) -> Entries | None:
    """Return the inputs that the caller chose, each as numbers or as categories; None if none are chosen."""
    if not isinstance(stated, Mapping):
        names = expanded(stated, [*look.columns])
        chosen = [_find(look.columns, name, "inputs", look) for name in names]
        words = {c.name: c.categories() for c in chosen if c.few and not (c.numeric or c.nearly_numeric)}
        return non_defaults(Inputs(tuple(c.name for c in chosen if c.name not in words), words))
    return dict(stated) if stated.keys() - {"standardise"} else None
