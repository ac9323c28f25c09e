"""The inputs of a table: all columns without another role that a model can use, and how their blanks are filled."""

from __future__ import annotations

from imperfed.census.columns import Column
from imperfed.census.flaws import mixed_kinds, spoilt
from imperfed.census.pixels import guess_size
from imperfed.census.roles import Look
from imperfed.data.files.declaration import Inputs, Places
from imperfed.data.files.problems import listed, shown
from imperfed.report.words import many, per_cent

CATEGORIES = 50
"""The most distinct words of a column that is used as a categorical input."""


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
    return _table(look, rest)


def _table(look: Look, rest: list[Column]) -> Inputs:
    usable = [c for c in rest if c.known and not c.lists]
    numeric = tuple(c.name for c in usable if c.numeric)
    words = {
        c.name: c.categories()
        for c in usable
        if _has_few_words(c) and not _unseen(c) and not mixed_kinds(look.layout, look.files, c)
    }
    of_words = f", {len(words)} of words with all their categories" if words else ""
    look.why.append(f"inputs: {many(len(numeric), 'column')} of numbers{of_words}")
    names = {*numeric, *words}
    taken = [c for c in rest if c.name in names]
    for c in rest:
        if c.name not in names:
            look.why.append(f"left out: {c.name}; {_flaw(look, c)}")
        elif c.nearly_numeric:
            look.why.append(f"taken as words: {c.name}; {_flaw(look, c)}")
    return Inputs(numeric, words, missing=_missing(look, taken), fill=_fills(look, taken))


def _has_few_words(column: Column) -> bool:
    return not column.numeric and column.few and len(column.values or ()) <= CATEGORIES


def _unseen(column: Column) -> str:
    """Return a word that no declaration may name: one of its characters cannot be seen; empty if there is none."""
    return next((word for word in sorted(column.values or ()) if not word.isprintable()), "")


def _missing(look: Look, columns: list[Column]) -> tuple[str, ...]:
    """Return the words that mean a blank among numbers."""
    found = sorted({word for c in columns for word in c.missing})
    if found:
        where = listed([c.name for c in columns if c.missing])
        look.why.append(f"missing: {listed([repr(word) for word in found])} in {where} mean a blank")
    return tuple(found)


def _fills(look: Look, columns: list[Column]) -> Places:
    """Return how the blanks of inputs are filled: by the median of numbers, and by the most frequent word."""
    fills = {c.name: "median" if c.numeric else "mode" for c in columns if c.blanks}
    for c in columns:
        if c.blanks:
            cells = f"{many(c.blanks, 'blank')} ({per_cent(c.blanks / c.rows)} of rows)"
            what = "median" if c.numeric else "most frequent word"
            look.why.append(f"fill: {c.name} has {cells}: the {what} of all sites takes their place, and one more")
            look.why[-1] += " input says where they were"
    return fills or ""


def _flaw(look: Look, column: Column) -> str:
    """Return why a column is not used as numbers."""
    if not column.known:
        return "all its cells are blank"
    if kinds := mixed_kinds(look.layout, look.files, column):
        return kinds
    if _has_few_words(column) and (word := _unseen(column)):
        return f"a character of {shown(word)} cannot be seen, such as a line break; write the word without it"
    cells = spoilt(look.layout, look.files, column.name) if column.nearly_numeric else ""
    if not cells and column.dates:
        return "dates; to use them, write them as numbers, such as an age or days since an event"
    return cells or "neither numbers nor a few words"
