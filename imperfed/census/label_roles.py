"""The columns of the labels, guessed from their values, and from their names if values do not decide."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from imperfed.census.columns import Column
from imperfed.census.flaws import absent
from imperfed.census.profiles import profile, values_by_site
from imperfed.census.roles import LABELS, SENSITIVE, Look, is_called_truth, words_of
from imperfed.core.errors import DataError
from imperfed.data.files.declaration import LabelColumns, Uncertain
from imperfed.data.files.problems import Problems, listed
from imperfed.data.files.reading import places

IN_DOUBT = -1.0
BY_NAME = "by its name"


def guess_labels(look: Look, site: str, known: str = "") -> LabelColumns:
    """Guess the columns of the labels, and their kind; `known`: the only column, if the caller names it."""
    if known:
        column = look.known(known)
        if column.yes_no_or_blank:
            return guess_one_column_per_class(look, [column])
        return guess_one_column(look, column, site, "as you say")
    by_name = [c for c in look.named(LABELS) if c.lists or c.few]
    if not by_name and (numbers := [c for c in look.named(LABELS) if c.measured and c.name.lower() != "y"]):
        _refuse_measurements(look, numbers[0])
    marked = _marked(look)
    gaps = [c for c in marked if c.blanks or IN_DOUBT in map(float, c.values or ())]
    lacking = [c for c in marked if c.name in look.scattered]
    sets = [c for c in look.columns.values() if (c.lists or c.separator()) and not set(words_of(c.name)) & {*SENSITIVE}]
    names = {c.name for c in marked}
    last = [c for c in _last(look, marked) if c.few and not c.blanks and not (lacking and c.name in names)]
    if len(gaps) == 1 and not lacking and any(c.name not in names for c in last):
        gaps = []  # blanks of a single input, beside labels in words
    if by_name and by_name[0].yes_no_or_blank:
        return guess_one_column_per_class(look, by_name[:1])
    if by_name or (not gaps and (sets or last)):
        return guess_one_column(look, (by_name or sets or last)[0], site, BY_NAME if by_name else "")
    if gaps or len(marked) > 1:
        return guess_one_column_per_class(look, _in_doubt(look, marked, [*gaps, *lacking]))
    raise DataError(
        f"{look.layout.files[0]}: no column looks like labels; found {', '.join(look.columns)}. Say which one it is: "
        f"imperfed inspect {look.layout.folder} --label COLUMN"
        + "".join(f"\n  {sentence}" for sentence in absent(look.layout, look.files, look.scattered))
    )


def _in_doubt(look: Look, marked: Sequence[Column], gaps: Sequence[Column]) -> Sequence[Column]:
    """Return the columns that are labels: if some have blanks or are not at all sites, the complete ones are inputs."""
    gap_names = {gap.name for gap in gaps}
    labels = gap_names | _between(look, gap_names)
    whole = [c for c in marked if c.known and c.name not in labels]
    if not gaps or not whole:
        return marked
    look.why.append(
        f"inputs, since every site filled them in: {listed([c.name for c in whole])}; move those that are labels"
    )
    inputs = {c.name for c in whole}
    return [c for c in marked if c.name not in inputs]


def _between(look: Look, gaps: Collection[str]) -> set[str]:
    """Return the columns that lie between two of these in some file: they are of their kind if they are in a block."""
    between: set[str] = set()
    for columns in look.files:
        names = [*columns]
        places = [place for place, name in enumerate(names) if name in gaps]
        between.update(names[min(places) : max(places)] if places else ())
    return between


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
    last = _ending(look, known)
    if last is None or not is_called_truth(last):
        return [last] if last else []
    # The truth of a label that stands before it: what is learned from is the label.
    label = _ending(look, known - {last.name})
    return [label if label and label.values and last.values and last.values <= label.values else last]


def _ending(look: Look, known: Collection[str]) -> Column | None:
    """Return the last of these columns, if it is the same in every file."""
    ends = {next((name for name in reversed(columns) if name in known), "") for columns in look.files}
    return next((c for c in look.columns.values() if ends == {c.name}), None)


def guess_one_column(look: Look, column: Column, site: str, why: str) -> LabelColumns:
    """Guess the kind and the classes of labels in one column, and the column of their truth.

    `why`: why it is this column; empty if its values say so.
    """
    _refuse_measurements(look, column)
    name, mark, classes = column.name, column.separator(), column.names()
    how = why or ("cells hold sets" if mark or column.lists else "the last column, few values")
    if (mark or column.lists) and _tested_on_several(look, name, mark):
        look.take(name, f"labels: all classes present in {name} ({how}), {len(classes)} classes")
        look.why.append("positives, not candidates: test rows, whose labels are taken as true, name several classes")
        return LabelColumns("positives", classes, name, separator=mark or "|")
    if mark or column.lists:
        look.take(name, f"labels: candidate sets in {name} ({how}), {len(classes)} classes; one of each set is true")
        true = look.within(classes)
        if true:
            look.take(true.name, f"truth: {true.name} names one of the classes in every row; for evaluation only")
        else:
            look.why.append('if all names of a set are true, write kind = "positives" instead of "candidates"')
        return LabelColumns("candidates", classes, name, separator=mark or "|", truth=true.name if true else "")
    alone = max(values_by_site(look.layout.files, look.files, name, site)) == 1 < len(classes)
    kind = "positive" if alone else "exact"
    note = "positives only, since every site names a single class" if alone else "one class per row"
    look.take(name, f"labels: {name} ({how}), {len(classes)} classes; {note}")
    true = look.within(classes)
    if true is None or not is_called_truth(true):
        return LabelColumns(kind, classes, name)
    look.take(true.name, f"truth: {true.name}, by its name; for evaluation only")
    return LabelColumns(kind, classes, name, truth=true.name)


def _refuse_measurements(look: Look, column: Column) -> None:
    """Refuse a column of measurements as labels."""
    if column.measured:
        number = f"{len(column.values):,}" if column.values else "many"
        raise DataError(
            f"{look.layout.files[0]}, column {column.name}: found {number} different numbers, expected classes: models "
            "learn classes, not quantities; cut the numbers into a few classes, such as with pandas.cut"
        )


def _tested_on_several(look: Look, name: str, mark: str) -> bool:
    """Return whether a row of the test files names several classes, with no other column that could be the truth."""
    where = look.layout.besides.get("test", "")
    for path in places(where, look.layout.folder).values() if where else ():
        found = profile([path], Problems())
        column = found[0].get(name) if found else None
        if column is None or look.within(column.names()) is not None:
            return False
        if column.lists or any(mark in value for value in column.values or ()):
            return True
    return False


def guess_one_column_per_class(look: Look, marked: Sequence[Column]) -> LabelColumns:
    """Guess how labels in one column per class are read."""
    names = tuple(c.name for c in marked)
    doubtful = sorted({value for c in marked for value in c.values or () if _is_in_doubt(value)})
    lacking = [name for name in names if name in look.scattered]
    blank = "a blank, or no such column at a site," if lacking else "a blank"
    columns = f"{len(names)} columns hold" if len(names) > 1 else f"{names[0]} holds"
    look.why.append(f"labels: {columns} only 1, 0 and blanks; {blank} is read as not annotated")
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
