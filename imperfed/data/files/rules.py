"""What a declaration must contain, and what excludes what; every broken rule is noted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from imperfed.core.labels import KINDS, Exact, Labels
from imperfed.data.files.blanks import ANY, fill_of, matches
from imperfed.data.files.declaration import POLICIES, Declaration, Inputs, LabelColumns, SensitiveColumn
from imperfed.data.files.problems import Problems, listed, nearest, shown
from imperfed.data.files.site_names import name_trouble

Note = Callable[[str, str, str, str], None]
"""Called with the key, what was found, what was expected, and the fix."""


def note_broken(declaration: Declaration, path: Path, problems: Problems) -> None:
    """Note everything that is wrong with a declaration whose values have the right types."""
    note: Note = partial(problems.add, path, None)
    _places(declaration, note)
    _marks(declaration, note)
    _inputs(declaration.inputs, note)
    _blanks(declaration.inputs, note)
    _labels(declaration, note)
    if declaration.attribute is not None:
        _attribute(declaration.attribute, declaration.inputs, note)


def _places(declaration: Declaration, note: Note) -> None:
    fix = 'write sites = "sites/*.csv", one file per site; or [sites] with name = "path"'
    if not declaration.sites:
        note("sites", "nothing", "the files of the sites", fix)
    for key, places in (("sites", declaration.sites), ("test", declaration.test)):
        if isinstance(places, Mapping):
            for name, path in places.items():
                if trouble := name_trouble(name):
                    note(f"{key}.{shown(name)}", trouble, "a name that is valid as a file name", "choose another name")
                if not path or "*" in path:
                    note(f"{key}.{name}", shown(path), "one path", "name one file or folder")
        elif places.count("*") > 1 or "?" in places or "[" in places:
            note(key, shown(places), "one * and no other pattern", "let one * stand for the name of the site")
        elif key == "sites" and places and ("*" in places) == bool(declaration.site_column):
            found = "a * and a site_column" if declaration.site_column else "one path without *"
            note(key, found, "either a * for the site's name, or one file with a site_column", fix)
    if isinstance(declaration.sites, Mapping) and declaration.site_column:
        note("site_column", "names of sites and a site_column", "one of them", "leave out site_column or [sites]")
    for key, path in (("public", declaration.public), ("trusted", declaration.trusted)):
        if "*" in path:
            note(key, shown(path), "one path", "name one file")
    texts = [*(p if isinstance(p, str) else "".join(p.values()) for p in (declaration.sites, declaration.test))]
    if not all(text.isprintable() for text in (*texts, declaration.public, declaration.trusted)):
        note("sites", "a path with unprintable characters", "plain paths", "fix the paths")


def _marks(declaration: Declaration, note: Note) -> None:
    """Note delimiters and decimal marks that no text file can have."""
    for key, declared in (("delimiter", declaration.delimiter), ("decimal", declaration.decimal)):
        by_site = declared.items() if isinstance(declared, Mapping) else [("", declared)] if declared else []
        for site, mark in by_site:
            where = f"{key}.{site}" if site else key
            if key == "decimal" and mark not in (".", ","):
                note(where, shown(mark), "a point or a comma", 'write "." or ",", or leave it out')
            elif len(mark) != 1 or mark in '"\r\n':
                note(where, shown(mark), "one character", 'such as "," or ";", or leave it out')


def _blanks(inputs: Inputs, note: Note) -> None:
    """Note declarations about blank inputs that apply to nothing, or to the wrong kind of column."""
    table = bool(inputs.numeric or inputs.categorical)
    columns = (*inputs.numeric, *inputs.categorical)
    names, patterns = {*columns}, [column for column in columns if ANY in column]
    for key, declared in (("fill", inputs.fill), ("missing", inputs.missing)):
        if declared and not table:
            note(f"inputs.{key}", "inputs that are no table", "nothing", "leave it out")
        for name in declared if table and isinstance(declared, Mapping) else ():
            if not (ANY in name or name in names or any(matches(pattern, name) for pattern in patterns)):
                note(f"inputs.{key}.{name}", "no such input", "a column of the inputs", nearest(name, columns))
    for column in inputs.numeric:
        how = fill_of(inputs, column)
        if how and how not in ("median", "mean") and not _is_finite(how):
            hint = "list the column under categorical" if how == "mode" else nearest(how, ("median", "mean"))
            note(f"inputs.fill ({column})", shown(how), "median, mean or a number, for a column of numbers", hint)
    for column, words in inputs.categorical.items():
        own = isinstance(inputs.fill, Mapping) and column in inputs.fill
        how = fill_of(inputs, column)
        if how not in ("", "mode", *words) and (own or how not in ("median", "mean")) and not _is_finite(how):
            note(
                f"inputs.fill ({column})", shown(how), "mode or a category, for a column of words", nearest(how, words)
            )


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _inputs(inputs: Inputs, note: Note) -> None:
    tables, images = bool(inputs.numeric or inputs.categorical), bool(inputs.image or inputs.size)
    ways = {"numeric or categorical": tables, "image": images, "sparse": inputs.sparse, "array": inputs.array}
    chosen = [way for way, declared in ways.items() if declared]
    if len(chosen) != 1:
        note("inputs", " and ".join(chosen) or "nothing", f"one of {listed([*ways])}", "say what the inputs are")
    _once("inputs.numeric", [*inputs.numeric, *inputs.categorical], note)
    for column, names in inputs.categorical.items():
        _names(f"inputs.categorical.{column}", names, 1, note)
    if images and not (len(inputs.size) == 2 and all(1 <= side <= 4096 for side in inputs.size)):
        note("inputs.size", shown(list(inputs.size)), "height and width of 1 to 4096", "write size = [64, 64]")
    if images and inputs.channels not in (1, 3):
        note("inputs.channels", shown(inputs.channels), "1 (grey) or 3 (colour)", "write channels = 1 or 3")
    if (inputs.slice != -1 or inputs.window) and not images:
        note("inputs", "slice or window", "images, of DICOM or NIfTI files", "leave them out")
    if inputs.slice < -1:
        note("inputs.slice", shown(inputs.slice), "a number from 0, or -1 for the middle", "leave it out")
    if inputs.window and not (len(inputs.window) == 2 and inputs.window[1] > 0):
        note("inputs.window", shown(list(inputs.window)), "centre and width, above 0", "write window = [40, 400]")
    if inputs.sparse and not 0 < inputs.features < 1 << 24:
        note(
            "inputs.features", shown(inputs.features), "the number of features, up to 16 million", "write features = N"
        )
    if inputs.lazy and (inputs.sparse or inputs.array):
        note("inputs.lazy", "true", "images, or tables in Parquet files", "leave it out")
    if inputs.cache < 1:
        note("inputs.cache", shown(inputs.cache), "gigabytes, at least 1", "write cache = 20")
    if inputs.features and not inputs.sparse:
        note("inputs.features", shown(inputs.features), "nothing without sparse", "leave it out")
    if inputs.sparse and inputs.standardise:
        note("inputs.standardise", "true", "nothing", "sparse inputs are never standardised; leave it out")


def declarable() -> dict[str, type[Labels]]:
    """Return the kinds of labels that can be read from a file."""
    return {name: kind for name, kind in KINDS.items() if kind.from_cells or kind.from_columns}


def _labels(declaration: Declaration, note: Note) -> None:
    labels, kinds = declaration.labels, declarable()
    kind = kinds.get(labels.kind)
    if kind is None:
        hint = nearest(labels.kind, kinds) if labels.kind else "say what the labels are"
        note("labels.kind", shown(labels.kind), f"one of {listed([*kinds])}", hint)
    _names("labels.classes", labels.classes, 1 if kind is None or kind.several else 2, note)
    if labels.column and labels.columns:
        note("labels", "column and columns", "one of them", "leave one out")
    for key in ("columns", "truth"):
        columns = getattr(labels, key)
        if isinstance(columns, tuple) and columns and len(columns) != len(labels.classes):
            expected = f"one for each of {len(labels.classes)} classes"
            note(f"labels.{key}", f"{len(columns)} columns", expected, "list all")
    _once("labels.columns", labels.columns, note)
    if not labels.separator or not labels.separator.isprintable():
        note("labels.separator", shown(labels.separator), "characters between classes", 'such as "|"')
    if declaration.inputs.in_folders:
        _class_folders(declaration, note)
    if kind is not None:
        _columns_of_kind(kind, declaration, note)
        _uncertain(kind, labels, note)


def _columns_of_kind(kind: type[Labels], declaration: Declaration, note: Note) -> None:
    """Note columns that cannot hold labels of this kind."""
    labels = declaration.labels
    if labels.columns and not kind.from_columns:
        note("labels.columns", "one column per class", f"one column: labels are {labels.kind}", "write column = ...")
    if not kind.from_columns and not labels.column and not declaration.inputs.in_folders:
        note("labels.column", "nothing", "the column of the class", "write column = ...")
    if isinstance(labels.truth, tuple) and labels.truth and not kind.several:
        note("labels.truth", "several columns", "the column of the true class", "name one column")
    for name in labels.classes if kind.from_cells and not kind.settles and labels.column else ():
        if labels.separator and labels.separator in name:
            note("labels.separator", f"class {shown(name)}", "classes without the separator", "choose another one")


def _class_folders(declaration: Declaration, note: Note) -> None:
    """Note what folders of images by class cannot have: columns, and labels other than exact ones."""
    labels = declaration.labels
    if labels.kind in declarable() and labels.kind != Exact.kind:
        note("labels.kind", shown(labels.kind), "exact labels: images by class", "or write inputs.image")
    columns = {
        "labels.column": labels.column,
        "labels.truth": labels.truth,
        "id": declaration.id,
        "group": declaration.group,
        "site_column": declaration.site_column,
    }
    for key, column in columns.items():
        if column:
            expected = "nothing: folders of images have no columns"
            note(key, shown(column), expected, "leave it out, or write inputs.image")


def _uncertain(kind: type[Labels], labels: LabelColumns, note: Note) -> None:
    """Note declarations about missing or uncertain marks that are meaningless or incomplete."""
    values, policy = labels.uncertain.values, labels.uncertain.read_as
    expected = f"{listed([name for name, other in declarable().items() if other.partial])} ones"
    if (values or policy) and not kind.partial:
        note("labels.uncertain", f"{labels.kind} labels", expected, "leave it out")
    elif values and policy not in POLICIES:
        hint = nearest(policy, POLICIES) if policy else "say how they are to be read"
        note("labels.uncertain.read_as", shown(policy), f"one of {listed(POLICIES)}", hint)
    elif policy and not values:
        note("labels.uncertain.values", "nothing", "the uncertain values", "write values = [-1]")
    if labels.missing and not kind.partial:
        note("labels.missing", f"{labels.kind} labels", expected, "leave it out")
    for value in labels.missing:
        if value in labels.uncertain.values:
            note("labels.missing", shown(value), "a value that is not uncertain as well", "leave it in one list")


def _attribute(attribute: SensitiveColumn, inputs: Inputs, note: Note) -> None:
    if not attribute.column:
        note("attribute.column", "nothing", "the column of the sensitive attribute", "name it or leave [attribute] out")
    _names("attribute.values", attribute.values, 2, note)
    if not attribute.separator or not attribute.separator.isprintable():
        note("attribute.separator", shown(attribute.separator), "characters between groups", 'such as "|"')
    if attribute.column in (*inputs.numeric, *inputs.categorical):
        fix = "leave it out of the inputs: its groups become inputs anyway"
        note("attribute.column", shown(attribute.column), "a column that is not also an input", fix)
    if inputs.lazy:
        note("attribute", "lazy inputs", "inputs in memory: all groups are counted", "leave lazy out")
    if inputs.image or inputs.size or inputs.sparse:
        note("attribute", "images or sparse inputs", "a table: its groups become columns", "leave [attribute] out")


def _names(key: str, names: Iterable[str], fewest: int, note: Note) -> None:
    names = list(names)
    if len(names) < fewest:
        found = "1 name" if len(names) == 1 else f"{len(names)} names"
        note(key, found, f"at least {fewest}", "list all of them, including those that no site holds")
    _once(key, names, note)
    for name in names:
        if name != name.strip() or not name or not name.isprintable():
            note(key, shown(name), "names without surrounding blanks or characters that cannot be seen", "fix the name")


def _once(key: str, names: Iterable[str], note: Note) -> None:
    for name in sorted(name for name, times in Counter(names).items() if times > 1):
        note(key, f"{shown(name)} twice", "every name once", "leave one out")
