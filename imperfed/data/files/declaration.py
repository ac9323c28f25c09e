"""`federation.toml`: which files hold the sites, what each column means, and how labels are read.

A declaration is the same at every site and contains none of their rows, so that it can be sent: `parse(text)` and
`Declaration.toml()` are each other's inverse.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import GenericAlias
from typing import Any

import tomli_w

from imperfed.core.errors import DataError
from imperfed.core.labels import KINDS
from imperfed.data.files.problems import Problems, nearest, shown

FILE = "federation.toml"
NOT_TEXT = ("folder", "in_memory")
"""The fields of a declaration that are not keys of the file."""
POLICIES = ("unknown", "positive", "negative", "refuse")

Names = tuple[str, ...]
Sizes = tuple[int, ...]
Choices = Mapping[str, Names]
Places = str | Mapping[str, str]
"""One text, or a table of texts by site or column."""
Words = Names | Mapping[str, Names]
"""One list, or a table of lists by column."""


@dataclass(frozen=True)
class Inputs:
    """What a model sees: columns of a table, images, sparse features, or one array of an .npz file."""

    numeric: Names = ()
    """Columns of numbers; a `*` stands for any characters, in all columns that have no other role."""
    categorical: Choices = field(default_factory=dict)
    """Column -> all of its categories, each of which becomes a column of 0 and 1."""
    image: str = ""
    """The column of image paths, relative to its file; not needed if sites are folders of images by class."""
    size: Sizes = ()
    """Height and width to which every image is resized."""
    channels: int = 3
    slice: int = -1
    """Which slice of a NIfTI volume, or frame of a DICOM file, counting from 0; -1: the middle one."""
    window: Sizes = ()
    """Centre and width of the values of DICOM and NIfTI files that become grey; empty: the file's own, or all."""
    lazy: bool = False
    """Read images, and row groups of Parquet files, when a batch needs them instead of all of them at the start."""
    cache: int = 20
    """Gigabytes on disk for what lazy inputs have decoded, in all."""
    sparse: str = ""
    """The column of `index:value` pairs separated by spaces; indices count from 0."""
    features: int = 0
    """The number of features of sparse inputs."""
    array: str = ""
    """The array of inputs in .npz files, [n, ...]."""
    standardise: bool | None = None
    """Scale inputs to mean 0 and deviation 1 over all sites, from sums; None: tables yes, images no."""
    missing: Words = ()
    """Values that mean a blank, for all columns of a table or by column; words or numbers."""
    fill: Places = ""
    """What fills a blank, for all columns or by column: median, mean, mode or a value; empty: nothing."""
    indicators: bool = True
    """Add one column of 0 and 1 for every column with a `fill`, which says where there was a blank."""

    @property
    def in_folders(self) -> bool:
        """Whether inputs are images in one folder per class."""
        return bool(self.size) and not self.image


@dataclass(frozen=True)
class Uncertain:
    """Values that mean neither present nor absent, and the policy by which they are read."""

    values: Names = ()
    read_as: str = ""


@dataclass(frozen=True)
class LabelColumns:
    """The label space, declared once for all sites, and the columns of the labels."""

    kind: str = ""
    classes: Names = ()
    column: str = ""
    """A column of one class, of a set of classes with separators, or of lists; or an array of an .npz file."""
    columns: Names = ()
    """One column of 0 and 1 per class, in the order of `classes`."""
    separator: str = "|"
    missing: Names = ()
    """Values that mean "not annotated", besides blank cells and nulls."""
    uncertain: Uncertain = field(default_factory=Uncertain)
    truth: str | Names = ""
    """True labels, for evaluation only: one column, or one column per class."""


@dataclass(frozen=True)
class SensitiveColumn:
    """A sensitive attribute: a column of one group per row, or of several that the row may belong to."""

    column: str = ""
    values: Names = ()
    separator: str = "|"
    truth: str = ""
    """The column of the one true group, for evaluation only."""


@dataclass(frozen=True)
class Declaration:
    """Everything that is declared about a federation's files."""

    name: str = ""
    sites: Places = ""
    """A path with one `*` for the site's name; or name -> path; or one file, with `site_column`."""
    site_column: str = ""
    id: str = ""
    group: str = ""
    """The column of what rows belong to, such as a patient: no group is both trained and tested on."""
    delimiter: Places = ""
    """Between the cells of .csv files, for all sites or by site; empty: found file by file. .tsv files use tabs."""
    decimal: Places = ""
    """The decimal mark of numbers in text files, for all sites or by site; empty: found file by file."""
    test: Places = ""
    """Clean test files: one per site, declared like `sites`, or one for all."""
    public: str = ""
    """A file of inputs that the server may see."""
    trusted: str = ""
    """A file of rows with true labels that only the server holds."""
    inputs: Inputs = field(default_factory=Inputs)
    labels: LabelColumns = field(default_factory=LabelColumns)
    attribute: SensitiveColumn | None = None
    folder: Path = Path()
    """The folder of the file, to which paths are relative. Not part of the text."""
    in_memory: bool = False
    """Whether the data are tables in memory, not files. Not part of the text."""

    @property
    def measured(self) -> bool:
        """Whether there are rows to test models on, or rows of the sites that can be held out for it."""
        return bool(self.test or self.labels.truth) or KINDS[self.labels.kind].measurable

    @property
    def file(self) -> Path:
        """The path of the declaration itself."""
        return self.folder / FILE

    def toml(self) -> str:
        """Return the text of the file; defaults are left out."""
        return tomli_w.dumps(non_defaults(self))


def is_federation(data: str) -> bool:
    """Return whether the data argument is a federation.toml, or a folder that contains one."""
    path = Path(data).expanduser()
    return path.suffix == ".toml" or os.path.isfile(path / FILE)


def called(data: str) -> str:
    """Return a short name for the data argument: a dataset's, a file's without its suffix, or a federation's folder."""
    path = Path(data).expanduser()
    path = path.parent if path.name == FILE else path
    return path.stem or path.resolve().name


def read_declaration(path: str | Path) -> Declaration:
    """Read a federation.toml, or the one in a folder; a `DataError` lists everything that is wrong with it."""
    path = Path(path).expanduser()
    path = path / FILE if path.is_dir() else path
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return _named_in_full(parse(text, path))


def _named_in_full(declaration: Declaration) -> Declaration:
    """Return the declaration with the names of columns in place of patterns, looked up in the files."""
    from imperfed.data.files.wildcards import name_columns

    problems = Problems()
    declaration = name_columns(declaration, problems)
    problems.check(str(declaration.file))
    return declaration


def parse(text: str, path: Path = Path(FILE)) -> Declaration:
    """Return a declaration from its text, whether read from `path` or received from elsewhere."""
    try:
        entries = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not a TOML file ({error})") from error
    problems = Problems()
    name = path.resolve().parent.name or "federation"
    declaration = declared({"name": name} | entries, path, problems)
    problems.check(str(path))
    return declaration


def declared(entries: Mapping[str, Any], path: Path, problems: Problems) -> Declaration:
    """Return the declaration with these entries; everything that is wrong with them is noted."""
    from imperfed.data.files.rules import note_broken

    declaration: Declaration = _filled(Declaration, entries, "", path, problems)
    declaration = replace(declaration, folder=path.parent)
    note_broken(declaration, path, problems)
    return declaration


# -- from TOML and back ------------------------------------------------------------------------------------------------


def _filled(schema: type[Any], entries: Mapping[str, Any], at: str, path: Path, problems: Problems) -> Any:
    """Return the dataclass filled from the entries; wrong ones are noted and left at their defaults."""
    hints = {name: hint for name, hint in typing.get_type_hints(schema).items() if name not in NOT_TEXT}
    for key in entries.keys() - hints.keys():
        where = f"{at}{key}" if not at or key.isidentifier() else f"{at}{shown(key)}"
        problems.add(path, None, where, "an unknown key", "a known one", nearest(key, hints))
    values = {}
    for key, kind in hints.items():
        if key not in entries:
            continue
        entry, kinds = entries[key], typing.get_args(kind) if _optional(kind) else (kind,)
        if is_dataclass(kinds[0]) and isinstance(entry, Mapping):
            values[key] = _filled(typing.cast(type[Any], kinds[0]), entry, f"{at}{key}.", path, problems)
            continue
        try:
            values[key] = _typed(entry, kinds[0])
        except (TypeError, ValueError):
            expected = WANTED.get(kinds[0], "a table of keys")
            problems.add(path, None, f"{at}{key}", shown(entry), expected, "change the value or leave the key out")
    return schema(**values)


def _optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


WANTED: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    Names: "a list of names",
    Sizes: "height and width, such as [64, 64]",
    Choices: "a table: column = [categories]",
    Places: "one text, or a table of texts by name",
    Words: "a list, or a table: column = [values]",
    str | Names: "a column, or a list of them",
}


def _typed(entry: Any, kind: Any) -> Any:
    """Return the entry as a value of the field's type, or raise an error."""
    if kind is Places:
        return {k: _typed(v, str) for k, v in entry.items()} if isinstance(entry, Mapping) else _typed(entry, str)
    if kind == Words:
        return _typed(entry, Choices if isinstance(entry, Mapping) else Names)
    if kind == str | Names:
        return _typed(entry, str if isinstance(entry, str) else Names)
    if kind == Choices:
        return {column: _typed(names, Names) for column, names in entry.items()} if entry else {}
    if kind == Sizes and isinstance(entry, int):
        return _typed([entry, entry], Sizes)
    if isinstance(kind, GenericAlias):
        if not isinstance(entry, list):
            raise TypeError(entry)
        return tuple(_typed(item, typing.get_args(kind)[0]) for item in entry)
    if kind is str and isinstance(entry, int | float) and not isinstance(entry, bool):
        return str(entry)  # classes may be numbers: [0, 1, 2]
    if not isinstance(entry, kind) or (kind is int and isinstance(entry, bool)):
        raise TypeError(entry)
    return entry


def non_defaults(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, by name; its own keys before its tables."""
    keys, tables = {}, {}
    for spec in fields(part):
        value = getattr(part, spec.name)
        default = spec.default if spec.default_factory is MISSING else spec.default_factory()
        if value == default or spec.name in NOT_TEXT:
            continue
        if is_dataclass(value):
            tables[spec.name] = non_defaults(value)
        else:
            keys[spec.name] = value
    return keys | tables
