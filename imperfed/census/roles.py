"""The roles of the columns of a table, guessed from their values, and from their names if values do not decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from imperfed.census.columns import Column, values_by_site
from imperfed.census.flaws import absent, first_blank, repeated, spoilt
from imperfed.census.folder_layout import FolderLayout
from imperfed.census.pixels import guess_size
from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Inputs, LabelColumns, SensitiveColumn, Uncertain
from imperfed.data.files.problems import listed
from imperfed.report.words import many

TRUTH = {"true", "truth"}
"""Words in the name of a column of true labels."""
SITES = (
    *("site", "client", "hospital", "clinic", "centre", "center", "institution", "office", "phone", "device", "user"),
    *("lab", "ward", "team", "school", "branch", "region", "subject"),
)
LABELS = ("labels", "label", "candidates", "class", "target", "y", "diagnosis", "category", "outcome", "tags")
SENSITIVE = ("race", "ethnicity", "religion")
WORDY = ("key", "name")
IDS = ("id", "uid", *WORDY)
PERSONS = ("patient", "person", "subject")
GROUPS = (*PERSONS, "family", "group")
"""Words in the names of columns that suggest a role."""
IN_DOUBT = -1.0
CATEGORIES = 50
"""The most distinct words of a column that is used as a categorical input."""


@dataclass
class Look:
    """The columns without a role so far, and the reasons for the roles of the others."""

    layout: FolderLayout
    columns: dict[str, Column]
    files: list[dict[str, Column]]
    """The columns of each file."""
    why: list[str]
    delimiter: str
    scattered: dict[str, Column]
    """The columns that some files lack."""

    @classmethod
    def at(
        cls,
        layout: FolderLayout,
        every: dict[str, Column],
        files: list[dict[str, Column]],
        why: list[str],
        delimiter: str,
    ) -> Look:
        """Begin with all columns."""
        common = {name: c for name, c in every.items() if all(name in columns for columns in files)}
        scattered = {name: c for name, c in every.items() if name not in common}
        return cls(layout, common, files, why, delimiter, scattered)

    def take(self, name: str, sentence: str) -> Column:
        """Give a column its role, with a sentence that says why."""
        self.why.append(sentence)
        return self.columns.pop(name)

    def named(self, words: Sequence[str]) -> list[Column]:
        """Return the columns with one of these words in their name, in the order of the words."""
        matches = (c for word in words for c in self.columns.values() if word in _words(c.name))
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
    return not TRUTH.isdisjoint(_words(column.name))


def guess_site(look: Look) -> str:
    """Guess the column that names the site of a row, in one file for all sites."""
    columns = sorted((c for c in look.named(SITES) if c.values and not c.unique), key=lambda c: bool(c.blanks))
    if columns and columns[0].blanks:
        row = first_blank(look.layout.files[0], columns[0].name, look.delimiter)
        raise DataError(
            f"{look.layout.files[0]}, {row}, column {columns[0].name}: found a blank, expected a site's name; fill the "
            f"cell, or drop the row ({many(columns[0].blanks, 'blank')} in total)"
        )
    if not columns:
        raise DataError(
            f"{look.layout.files[0]}: one file for all sites needs a column that names the site, and none is called "
            f"{', '.join(SITES[:4])} or similar; rename it, or write federation.toml with site_column = ..."
        )
    name = columns[0].name
    look.take(name, f"site_column: {name}, by its name; {len(columns[0].values or ())} sites")
    return name


def guess_labels(look: Look, site: str) -> LabelColumns:
    """Guess the columns of the labels, and their kind."""
    by_name = [c for c in look.named(LABELS) if c.lists or c.few]
    marked = _marked(look)
    gaps = [c for c in marked if c.blanks or IN_DOUBT in map(float, c.values or ())]
    lacking = [c for c in marked if c.name in look.scattered]
    sets = [c for c in look.columns.values() if (c.lists or c.separator()) and not set(_words(c.name)) & {*SENSITIVE}]
    last = [c for c in _last(look, marked) if c.few and not c.blanks and not (lacking and c in marked)]
    if by_name or (not gaps and (sets or last)):
        return guess_one_column(look, (by_name or sets or last)[0], site, bool(by_name))
    if gaps or len(marked) > 1:
        return guess_one_column_per_class(look, marked)
    raise DataError(
        f"{look.layout.files[0]}: no column looks like labels; found {', '.join(look.columns)}. Call it label, or "
        "write federation.toml with [labels]"
        + "".join(f"\n  {sentence}" for sentence in absent(look.layout, look.files, look.scattered))
    )


def _marked(look: Look) -> list[Column]:
    """Return the columns of yes and no, with those that some sites lack if every site has at least one."""
    every = [*look.columns.values(), *look.scattered.values()]
    names = {c.name for c in every if c.marks}
    if not all(names & columns.keys() for columns in look.files):
        every, names = [*look.columns.values()], names & look.columns.keys()
    # A column that is blank everywhere counts as a class if other columns are marked.
    return [c for c in every if c.name in names or (names and c.values == frozenset())]


def _last(look: Look, marked: Sequence[Column]) -> list[Column]:
    """Return the column that comes last in every file, after all possible labels and inputs."""
    known = look.columns.keys() | {c.name for c in marked}
    ends = {next((name for name in reversed(columns) if name in known), "") for columns in look.files}
    return [c for c in look.columns.values() if ends == {c.name}]


def guess_one_column(look: Look, column: Column, site: str, by_name: bool) -> LabelColumns:
    """Guess the kind and the classes of labels in one column, and the column of their truth."""
    name, mark, classes = column.name, column.separator(), column.names()
    how = "by its name" if by_name else "cells hold sets" if mark or column.lists else "the last column, few values"
    if mark or column.lists:
        look.take(name, f"labels: candidate sets in {name} ({how}), {len(classes)} classes; one of each set is true")
        true = look.within(classes)
        if true:
            look.take(true.name, f"truth: {true.name} names one of the classes in every row; for evaluation only")
        else:
            look.why.append('if all names of a set are true, write kind = "positives" instead of "candidates"')
        return LabelColumns("candidates", classes, name, separator=mark or "|", truth=true.name if true else "")
    alone = max(values_by_site(look.layout.files, look.files, name, site, look.delimiter)) == 1 < len(classes)
    kind = "positive" if alone else "exact"
    note = "positives only, since every site names a single class" if alone else "one class per row"
    look.take(name, f"labels: {name} ({how}), {len(classes)} classes; {note}")
    true = look.within(classes)
    if true is None or not is_called_truth(true):
        return LabelColumns(kind, classes, name)
    look.take(true.name, f"truth: {true.name}, by its name; for evaluation only")
    return LabelColumns(kind, classes, name, truth=true.name)


def guess_one_column_per_class(look: Look, marked: Sequence[Column]) -> LabelColumns:
    """Guess how labels in one column per class are read."""
    names = tuple(c.name for c in marked)
    doubtful = sorted({value for c in marked for value in c.values or () if _is_in_doubt(value)})
    lacking = [name for name in names if name in look.scattered]
    blank = "a blank, or no such column at a site," if lacking else "a blank"
    look.why.append(f"labels: {len(names)} columns hold only 1, 0 and blanks; {blank} is read as not annotated")
    whole = [c.name for c in marked if c.name not in lacking and not c.blanks]
    if whole and len(whole) < len(names):
        look.why.append(
            f"also taken as classes, although all sites filled them in: {listed(whole)}; move those that are inputs"
        )
    for name in names:
        (look.scattered if name in lacking else look.columns).pop(name)
    if doubtful:
        look.why.append(
            f"uncertain: {', '.join(doubtful)} is read as unknown; the alternatives are positive, negative and refuse"
        )
    uncertain = Uncertain(tuple(doubtful), "unknown") if doubtful else Uncertain()
    return LabelColumns("annotated", names, columns=names, uncertain=uncertain)


def _is_in_doubt(value: str) -> bool:
    with suppress(ValueError):  # a caller may have chosen columns with other marks, such as NA
        return float(value) == IN_DOUBT
    return False


def guess_image(look: Look) -> str:
    """Guess the column of paths of images; empty if there is none."""
    image = next((name for name, column in look.columns.items() if column.paths), "")
    if image:
        look.take(image, f"image: {image} holds paths of images")
    return image


def guess_attribute(look: Look) -> SensitiveColumn | None:
    """Guess the sensitive attribute: a column with such a name, or one of sets that are not labels."""
    sets = [c for c in look.columns.values() if c.few and c.separator()]
    columns = [c for c in [*look.named(SENSITIVE), *sets] if c.few and not c.blanks and len(c.names()) > 1]
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
    columns = [c for c in _row_names(look) if not c.blanks and (c.unique or _unique_at(look, c, site))]
    if columns:
        look.take(columns[0].name, f"id: {columns[0].name}, by its name; no value occurs twice at a site")
        return columns[0].name
    if image and all(file[image].unique for file in look.files):
        look.why.append(f"id: {image}, since no image occurs twice at a site")
        return image
    return ""


def _row_names(look: Look) -> list[Column]:
    """Return the columns with names like ids: `id`, `patient_id`, `patient`, but not `patient_age`."""
    columns = look.named((*IDS, *PERSONS))
    return [c for c in columns if {*IDS} & {*_words(c.name)} or _words(c.name)[-1] in PERSONS]


def _unique_at(look: Look, column: Column, site: str) -> bool:
    """Return whether no value occurs twice at a site, in one file for all sites."""
    return bool(site) and not repeated(look.layout, column.name, site, look.delimiter)


def guess_group(look: Look) -> str:
    """Guess the column that groups rows which must not be both trained and tested on, such as those of a patient."""
    columns = [c for c in look.named(GROUPS) if c.values and not c.unique and not c.blanks]
    if not columns:
        return ""
    look.take(columns[0].name, f"group: {columns[0].name}, by its name; a group is never both trained and tested on")
    return columns[0].name


def leave_out(look: Look, labels: LabelColumns, site: str) -> None:
    """Leave out columns that would leak what a model must not know: ids of rows, and other readings of the label."""
    for c in _row_names(look):
        if not (c.few and {*WORDY} & {*_words(c.name)}):
            twice = repeated(look.layout, c.name, site, look.delimiter)
            look.take(c.name, f"left out: {c.name}, an id by its name" + (f"; {twice}" if twice else ""))
    doubtful = []
    for c in [c for c in look.columns.values() if c.values and len(c.values) > 1 and c.values <= {*labels.classes}]:
        if (len(labels.classes) > 2 and not c.numeric) or _alike(c.name, labels.column):
            look.take(c.name, f"left out: {c.name}; its values are the classes, as if it were another label")
        else:
            doubtful.append(c.name)
    if doubtful:
        look.why.append(f"inputs with the values of the label: {listed(doubtful)}; remove those derived from it")


def _alike(name: str, label: str) -> bool:
    """Return whether a column is named like labels, or like the label except for a number."""
    first, second = (re.sub(r"[\W\d_]", "", text.lower()) for text in (name, label))
    return first == second or bool(set(_words(name)) & {*LABELS})


def guess_inputs(look: Look, image: str) -> Inputs:
    """Take all remaining columns that a model can use as inputs."""
    rest = list(look.columns.values())
    if image:
        first, paths = look.layout.files[0].parent, sorted(look.files[0][image].values or ())
        size, channels, why = guess_size(first / path for path in paths)
        look.why += [why, *(f"left out: {c.name}; inputs are images" for c in rest)]
        return Inputs(image=image, size=size, channels=channels)
    pairs = next((c for c in rest if c.pairs), None)
    if pairs:
        features = 1 + max(int(pair.partition(":")[0]) for value in pairs.values or () for pair in value.split())
        look.why.append(f"sparse: {pairs.name} holds index:value pairs; the highest index implies {features} features")
        look.why += [f"left out: {c.name}; inputs are sparse" for c in rest if c is not pairs]
        return Inputs(sparse=pairs.name, features=features)
    complete = [c for c in rest if c.values != frozenset() and not c.blanks and not c.lists]
    numeric = tuple(c.name for c in complete if c.numeric)
    words = {c.name: c.names() for c in complete if not c.numeric and c.few and len(c.values or ()) <= CATEGORIES}
    of_words = f", {len(words)} of words with all their categories" if words else ""
    look.why.append(f"inputs: {many(len(numeric), 'column')} of numbers{of_words}")
    for c in rest:
        if c.name not in (*numeric, *words):
            look.why.append(f"left out: {c.name}; {_flaw(look, c)}")
        elif c.nearly_numeric:
            look.why.append(f"taken as words: {c.name}; {_flaw(look, c)}")
    return Inputs(numeric, words)


def _flaw(look: Look, column: Column) -> str:
    """Return why a column is not used as numbers."""
    if column.blanks:
        return "it has blank cells; fill or drop them"
    cells = spoilt(look.layout, look.files, column.name, look.delimiter) if column.nearly_numeric else ""
    return cells or "neither numbers nor a few words"


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()) if word]
