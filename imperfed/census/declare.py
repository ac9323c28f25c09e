"""The declaration of tables in memory: what the caller says about their columns, and guesses about the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from imperfed.census.columns import Column, merged
from imperfed.census.folder_layout import MemoryLayout
from imperfed.census.guess import guess_array, guess_rest
from imperfed.census.label_roles import guess_one_column, guess_one_column_per_class
from imperfed.census.profiles import profile
from imperfed.census.roles import Look, guess_image
from imperfed.core.errors import UsageError
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
    look, told = _look(tables), entries["inputs"]
    if "array" in told:
        return {**entries, "labels": _array_labels(look, entries["labels"], tables)}, tuple(look.why)
    site = entries.get("site_column", "")
    if not all(site in table.columns for table in tables.values()):
        site = ""  # reading will say so, with all else that is wrong
    for name in _declared(entries):
        look.columns.pop(name, None)
    known = {**entries, "labels": _labels(look, entries["labels"], site)}
    if "attribute" in entries:
        known["attribute"] = _attribute(look, entries["attribute"])
    chosen = _chosen_inputs(look, told)
    if chosen is None:
        labels = LabelColumns(classes=tuple(known["labels"]["classes"]))
        guessed = guess_rest(Declaration(site_column=site, labels=labels), look, guess_image(look)).declaration
        rest = non_defaults(guessed)
    else:
        rest = {"inputs": chosen}
    known["inputs"] = {**rest["inputs"], **(told if isinstance(told, Mapping) else {})}
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


def _labels(look: Look, told: Entries, site: str) -> Entries:
    """Return the label columns with their kind and classes."""
    if "columns" in told:
        every = look.columns | look.scattered
        marked = [_find(every, name, "label", look) for name in told["columns"]]
        guessed = non_defaults(guess_one_column_per_class(look, marked))
        if told.get("kind", "annotated") != "annotated":
            guessed.pop("uncertain", None)
        return {**guessed, **told}
    return _one_column(look, _find(look.columns, told["column"], "label", look), told, site)


def _one_column(look: Look, column: Column, told: Entries, site: str) -> Entries:
    if told.get("kind") == "positives":
        return _sets_of_positives(look, column, told)
    guessed = non_defaults(guess_one_column(look, column, site, by_name=True))
    if "separator" in told:
        names = {item.strip() for value in column.values or () for item in value.split(told["separator"])}
        guessed |= {"kind": "candidates", "classes": sorted(names - {""})}
    elif told.get("kind") in ("exact", "positive"):  # one class per row, whatever marks its name contains
        guessed["classes"] = sorted(column.values or (), key=float if column.numeric else str)
    return {**guessed, **told}


def _sets_of_positives(look: Look, column: Column, told: Entries) -> Entries:
    """Return how sets of which every class is present are read: their truth is no single class, so none is guessed."""
    separator = told.get("separator") or column.separator() or "|"
    names = {item.strip() for value in column.values or () for item in value.split(separator)} - {""}
    look.take(column.name, f"labels: {column.name}, {len(names)} classes; all of a set are present")
    if alike := look.within(sorted(names)):
        look.take(alike.name, f"left out: {alike.name} has the values of the label")
    return {"classes": sorted(names), "separator": separator, **told}


def _array_labels(look: Look, told: Entries, tables: Mapping[str, MemoryTable]) -> Entries:
    """Return how arrays of labels are read."""
    matrices = [table.columns["labels"] for table in tables.values()]
    if not any(isinstance(part, np.ndarray) for part in matrices):
        look.columns.pop("truth", None)
        return _one_column(look, look.columns["labels"], told, "")
    kind, classes = guess_array([part for part in matrices if isinstance(part, np.ndarray)])
    return {"kind": kind, "classes": classes, **told}


def _find(columns: Mapping[str, Column], name: str, argument: str, look: Look) -> Column:
    if name not in columns:
        table = look.layout.files[0]
        raise UsageError(f"{argument}={name!r}: {table} has no such column; {nearest(name, columns)}")
    return columns[name]


# -- inputs ------------------------------------------------------------------------------------------------------------


def _attribute(look: Look, told: Entries) -> Entries:
    column = _find(look.columns, told["column"], "attribute", look)
    del look.columns[column.name]
    return {"values": column.names(), "separator": column.separator() or "|", **told}


def _chosen_inputs(look: Look, told: Any) -> Entries | None:
    """Return the inputs that the caller chose, each as numbers or as categories; None if none are chosen."""
    if not isinstance(told, Mapping):
        names = expanded(told, [*look.columns])
        chosen = [_find(look.columns, name, "inputs", look) for name in names]
        words = {c.name: c.names() for c in chosen if c.few and not (c.numeric or c.nearly_numeric)}
        return non_defaults(Inputs(tuple(c.name for c in chosen if c.name not in words), words))
    return dict(told) if told.keys() - {"standardise"} else None
