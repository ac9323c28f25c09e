"""The roles of the columns of a table, guessed from their values, and from their names if values do not decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from imperfed.census.columns import Column
from imperfed.census.flaws import first_blank, repeated
from imperfed.census.folder_layout import TABLES, WORKBOOKS, FolderLayout
from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.declaration import LabelColumns, SensitiveColumn
from imperfed.data.files.problems import listed, nearest
from imperfed.report.words import many

TRUTH = {"true", "truth"}
"""Words in the name of a column of true labels."""
SITES = (
    *("site", "client", "hospital", "clinic", "centre", "center", "institution", "office", "phone", "device", "user"),
    *("lab", "ward", "team", "school", "branch", "region", "subject"),
)
LABELS = ("labels", "label", "candidates", "class", "target", "y", "diagnosis", "category", "outcome", "tags")
SENSITIVE = ("race", "ethnicity", "religion", "sex", "gender")
WORDY = ("key", "name")
IDS = ("id", "uid", *WORDY)
NUMBERS = ("nr", "no", "number", "mrn")
PERSONS = ("patient", "person", "subject")
GROUPS = (*PERSONS, "family", "group")
"""Words in the names of columns that suggest a role."""
MOST_GROUPS = 20
"""The most groups of a sensitive attribute."""


@dataclass
class Look:
    """The columns without a role so far, and the reasons for the roles of the others."""

    layout: FolderLayout
    columns: dict[str, Column]
    files: list[dict[str, Column]]
    """The columns of each file."""
    why: list[str]
    scattered: dict[str, Column]
    """The columns that some files lack."""

    @classmethod
    def at(
        cls,
        layout: FolderLayout,
        every: dict[str, Column],
        files: list[dict[str, Column]],
        why: list[str],
    ) -> Look:
        """Begin with all columns that have a name."""
        if "" in every:
            row_numbers = "; pandas writes row numbers so, unless index=False"
            why = [
                *why,
                "left out: the column without a name" + (row_numbers if every[""].known else ", which is blank"),
            ]
            every = {name: c for name, c in every.items() if name}
        common = {name: c for name, c in every.items() if all(name in columns for columns in files)}
        scattered = {name: c for name, c in every.items() if name not in common}
        return cls(layout, common, files, why, scattered)

    def take(self, name: str, sentence: str) -> Column:
        """Give a column its role, with a sentence that says why."""
        self.why.append(sentence)
        return self.columns.pop(name)

    def known(self, name: str) -> Column:
        """Return the column that the caller names."""
        if name not in self.columns:
            where = "not at all sites" if name in self.scattered else nearest(name, self.columns)
            raise UsageError(f"{self.layout.files[0]}: no column {name!r} to be used for that; {where}")
        return self.columns[name]

    def named(self, words: Sequence[str]) -> list[Column]:
        """Return the columns with one of these words in their name, in the order of the words."""
        matches = (c for word in words for c in self.columns.values() if word in words_of(c.name))
        return list({c.name: c for c in matches}.values())

    def within(self, names: Sequence[str]) -> Column | None:
        """Return a column that has one of these names in every row, and several of them overall.

        Where the names are numbers, any column of numbers may happen to do so: then only one that is called the truth.
        """
        filled = [c for c in self.columns.values() if c.values and len(c.values) > 1 and not c.blanks and not c.lists]
        fitting = [c for c in filled if c.values is not None and c.values <= set(names)]
        called = [c for c in fitting if is_called_truth(c)]
        return next(iter([*called, *(c for c in fitting if not c.numeric)]), None)


def is_called_truth(column: Column) -> bool:
    """Return whether the name of a column says that it holds the truth."""
    return not TRUTH.isdisjoint(words_of(column.name))


def guess_site(look: Look, known: str = "") -> str:
    """Guess the column that names the site of a row, in one file for all sites, unless it is known."""
    if known:
        column = look.known(known)
        look.take(known, f"site_column: {known}, as you say; {len(column.values or ())} sites")
        return known
    columns = sorted((c for c in look.named(SITES) if c.values and not c.unique), key=lambda c: bool(c.blanks))
    if columns and columns[0].blanks:
        row = first_blank(look.layout.files[0], columns[0].name)
        raise DataError(
            f"{look.layout.files[0]}, {row}, column {columns[0].name}: found a blank, expected a site's name; fill the "
            f"cell, or drop the row ({many(columns[0].blanks, 'blank')} in total)"
        )
    if not columns:
        raise DataError(
            f"{look.layout.files[0]}: one file for all sites needs a column that names the site, and none is called "
            f"{', '.join(SITES[:4])} or similar; say which: imperfed inspect {look.layout.files[0]} --site COLUMN"
            f"{_other_formats(look.layout)}"
        )
    name = columns[0].name
    look.take(name, f"site_column: {name}, by its name; {len(columns[0].values or ())} sites")
    return name


def _other_formats(layout: FolderLayout) -> str:
    """Return how the files beside the only one, which may be those of other sites, are taken in; empty if none are."""
    formats = (*TABLES, *WORKBOOKS, ".gz")
    beside = [path for path in sorted(layout.folder.glob("[!.]*")) if path.suffix.lower() in formats]
    others = [path for path in beside if path.name not in (layout.sites, *layout.besides.values())]
    if not others:
        return ""
    unlike = [path.name for path in others if path.suffix.lower() != layout.files[0].suffix.lower()]
    how = f"give {listed(unlike)} the same format" if unlike else f"name their folder: imperfed inspect {layout.folder}"
    return f". If each site has a file of its own, {how}"


def guess_image(look: Look) -> str:
    """Guess the column of paths of images; empty if there is none."""
    image = next((name for name, column in look.columns.items() if column.paths), "")
    if image:
        look.take(image, f"image: {image} holds paths of images")
    return image


def guess_attribute(look: Look) -> SensitiveColumn | None:
    """Guess the sensitive attribute: a column of a few groups with such a name, above all one of several groups."""
    named = [c for c in look.named(SENSITIVE) if c.few and not c.blanks]
    columns = [c for c in named if 1 < len(c.names()) <= MOST_GROUPS]
    column = next((c for c in columns if c.separator()), columns[0] if columns else None)
    if column is None:
        return None
    how = "cells name several groups" if column.separator() else "by its name"
    look.take(column.name, f"attribute: {column.name} ({how}), {len(column.names())} groups; sensitive")
    true = look.within(column.names()) if column.separator() else None
    if true:
        look.take(
            true.name, f"attribute's truth: {true.name} names one of the groups in every row; for evaluation only"
        )
    mark = column.separator() or "|"
    return SensitiveColumn(column.name, column.names(), mark, true.name if true else "")


def guess_id(look: Look, image: str, site: str) -> str:
    """Guess the column that identifies rows."""
    named = [c for c in _row_names(look) if not c.blanks and (c.unique or _unique_at(look, c, site))]
    why = dict.fromkeys([c.name for c in named], "by its name") | _serial_numbers(look)
    for name, reason in why.items():
        look.take(name, f"id: {name}, {reason}; no value occurs twice at a site")
        return name
    if image and all(file[image].unique for file in look.files):
        look.why.append(f"id: {image}, since no image occurs twice at a site")
        return image
    return ""


def _row_names(look: Look) -> list[Column]:
    """Return the columns with names like ids: `id`, `patient_id`, `patient`, but not `patient_age`."""
    columns = look.named((*IDS, *PERSONS))
    return [c for c in columns if {*IDS} & {*words_of(c.name)} or words_of(c.name)[-1] in PERSONS]


def _serial_numbers(look: Look) -> dict[str, str]:
    """Return the columns that number the rows, and how each shows it: by its name, such as `Case No`, or by zeros."""
    numbers = [c for c in look.columns.values() if c.numeric and c.unique and c.known and not c.blanks]
    named = [c.name for c in numbers if words_of(c.name)[-1:] and words_of(c.name)[-1] in NUMBERS]
    zeros = [c.name for c in numbers if c.codes]
    return dict.fromkeys(named, "by its name") | dict.fromkeys(zeros, "by the leading zeros of its numbers")


def _unique_at(look: Look, column: Column, site: str) -> bool:
    """Return whether no value occurs twice at a site, in one file for all sites."""
    return bool(site) and not repeated(look.layout, column.name, site)


def guess_group(look: Look) -> str:
    """Guess the column that groups rows which must not be both trained and tested on, such as those of a patient."""
    columns = [c for c in look.named(GROUPS) if c.values and not c.unique and not c.blanks]
    if not columns:
        return ""
    look.take(columns[0].name, f"group: {columns[0].name}, by its name; a group is never both trained and tested on")
    return columns[0].name


def leave_out(look: Look, labels: LabelColumns, site: str) -> None:
    """Leave out what a model must not know: ids of rows, the site of a file, and other readings of the label."""
    for name in _site_names(look):
        look.take(name, f"left out: {name}, which names the site")
    for c in _row_names(look):
        if not (c.few and {*WORDY} & {*words_of(c.name)}):
            twice = repeated(look.layout, c.name, site)
            look.take(c.name, f"left out: {c.name}, an id by its name" + (f"; {twice}" if twice else ""))
    for name, reason in _serial_numbers(look).items():
        look.take(name, f"left out: {name}, an id {reason}")
    for c in [c for c in look.columns.values() if c.codes and not c.few]:
        look.take(c.name, f"left out: {c.name}; numbers with leading zeros are codes, and no measurements")
    doubtful = []
    for c in [c for c in look.columns.values() if c.values and len(c.values) > 1 and c.values <= {*labels.classes}]:
        if (len(labels.classes) > 2 and not c.numeric) or _alike(c.name, labels.column):
            look.take(c.name, f"left out: {c.name}; its values are the classes, as if it were another label")
        else:
            doubtful.append(c.name)
    if doubtful:
        look.why.append(f"inputs with the values of the label: {listed(doubtful)}; remove those derived from it")


def _site_names(look: Look) -> list[str]:
    """Return the columns that hold, in the file of every site, nothing but the site's name."""
    named, files = look.layout.named(), dict(zip(look.layout.files, look.files, strict=True))
    if "" in named:
        return []
    return [
        name
        for name in look.columns
        if all(files[file][name].values == frozenset({site}) for site, file in named.items())
    ]


def _alike(name: str, label: str) -> bool:
    """Return whether a column is named like labels, or like the label except for a number."""
    first, second = (re.sub(r"[\W\d_]", "", text.lower()) for text in (name, label))
    return first == second or bool(set(words_of(name)) & {*LABELS})


def words_of(name: str) -> list[str]:
    """Return the words of a column's name, in small letters."""
    return [word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()) if word]
