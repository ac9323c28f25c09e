"""From the arguments of a call to the rows of a federation: the keys of federation.toml as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

from imperfed.api.column_names import with_names
from imperfed.api.handed_over import as_inputs_table, by_site
from imperfed.census.declare import Entries, complete
from imperfed.core.errors import DataError, UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE, Declaration, declared
from imperfed.data.files.memory import MemoryTable
from imperfed.data.files.problems import Problem, Problems, listed
from imperfed.data.files.reading import Reading, read_sites
from imperfed.data.own_files import federate_files
from imperfed.experiments.config import Config

OF_LABELS = ("kind", "classes", "separator", "missing", "uncertain", "truth")
OF_TABLES = ("name", "id", "group")
OF_WORDS = ("kind", "separator", "name")
PARTS = ("test", "public", "trusted")
"""Further rows, as tables or arrays; numbers are settings of the split instead."""
ARGUMENTS = ("label", "site", "inputs", "attribute", *OF_LABELS, *OF_TABLES, *PARTS)
"""The keyword arguments that describe data in memory."""
ALSO_SETTINGS = ("kind", "classes", "name", *PARTS)
"""Those of them that are also settings, which a run on files or a built-in dataset takes."""
SHORT = {"sites": "data", "site_column": "site", "labels.column": "label", "labels.columns": "label"}
"""The arguments that are not called like the last part of their key."""


@dataclass(frozen=True)
class MemoryData:
    """Rows that were handed over in memory, with the declaration by which they were read."""

    reading: Reading
    guessed: tuple[str, ...] = ()
    """One sentence for everything that was guessed about the columns."""

    @property
    def declaration(self) -> Declaration:
        """What the columns mean."""
        return self.reading.declaration

    def federate(self, config: Config) -> FederatedData:
        """Return what the sites and the server hold."""
        return federate_files(self.reading, config.split, config.labels, config.run.data_seed)

    def index(self) -> dict[str, dict[str, Any]] | None:
        """Return the caller's own name of each row, by site and id; None if tables have no index."""
        names = {}
        for site in self.reading.sites:
            table = site.rows.table.file
            if not isinstance(table, MemoryTable) or table.index is None:
                return None
            own = table.index.take(site.rows.at).to_pylist()
            names[site.name] = dict(zip(site.rows.ids(), own, strict=True))
        return names


def split_keywords(keywords: Mapping[str, Any], in_memory: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments that describe data in memory, and the settings of the run."""
    keywords = {key: value for key, value in keywords.items() if key not in ARGUMENTS or value is not None}
    described = {key: value for key, value in keywords.items() if key in ARGUMENTS and not _is_share(key, value)}
    if not in_memory:
        described = {key: value for key, value in described.items() if key not in ALSO_SETTINGS or not _is_plain(value)}
        if described:
            raise UsageError(
                f"{next(iter(described))}=...: describes data in memory; for a dataset or files leave it out, and "
                f"write {FILE} for files of your own"
            )
    return described, {key: value for key, value in keywords.items() if key not in described}


def _is_share(key: str, value: Any) -> bool:
    return key in PARTS and isinstance(value, Real)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | list | tuple)


def read_tables(data: Any, described: Mapping[str, Any]) -> MemoryData:
    """Return the rows of tables, arrays or datasets; one error says everything that is wrong."""
    sites = by_site(data, "data")
    parts = {key: _part(key, described[key]) for key in PARTS if key in described}
    entries = _entries(sites, described)
    entries, guessed = complete(entries, sites)
    entries |= {"sites": _places("data", sites)} | {key: _places(key, part) for key, part in parts.items()}
    problems = Problems()
    declaration = replace(declared(_as_toml(entries), Path(FILE), problems), in_memory=True)
    _refuse_arguments(problems)
    return MemoryData(_read(declaration, sites, parts), guessed)


def read_again(declaration: Declaration, data: Any, described: Mapping[str, Any]) -> MemoryData:
    """Return the rows of tables that are read by the declaration of an earlier run."""
    sites = by_site(data, "data")
    parts = {key: _part(key, described[key]) for key in PARTS if key in described}
    for key, tables in ({"sites": sites} | parts).items():
        argument = "data" if key == "sites" else key
        if _places(argument, tables) != (before := getattr(declaration, key)):
            form = f"one table per site, of {listed([*before])}" if isinstance(before, Mapping) else "one table"
            raise UsageError(f"{argument}=...: not what the run began with; hand over {form if before else 'nothing'}")
    if lacking := [key for key in PARTS if getattr(declaration, key) and key not in parts]:
        raise UsageError(f"{lacking[0]}=...: missing; the run began with it, so hand it over again")
    return MemoryData(_read(declaration, sites, parts))


def _part(key: str, value: Any) -> dict[str, MemoryTable]:
    return {"": as_inputs_table(value, key)} if key == "public" else by_site(value, key)


def _places(key: str, tables: Mapping[str, MemoryTable]) -> str | dict[str, str]:
    """Return what a declaration says instead of paths."""
    return key if "" in tables else {site: str(table) for site, table in tables.items()}


def _read(
    declaration: Declaration, sites: Mapping[str, MemoryTable], parts: Mapping[str, Mapping[str, MemoryTable]]
) -> Reading:
    tables = {str(table): table for part in (sites, *parts.values()) for table in part.values()}
    reading = read_sites(declaration, tables)
    refuse(reading.problems)
    return reading


# -- the declaration ---------------------------------------------------------------------------------------------------


def _entries(sites: Mapping[str, MemoryTable], described: Mapping[str, Any]) -> Entries:
    """Return what the caller says, by the keys of federation.toml."""
    _check_words(described)
    arrays = next(iter(sites.values())).suffix == ".npz"
    described = _for_arrays(sites, described) if arrays else _for_tables(sites, described)
    labels = {key: described[key] for key in OF_LABELS if key in described}
    label, inputs = described.get("label"), described.get("inputs")
    if arrays:
        labels |= {"column": "labels"} | ({"truth": "truth"} if _have_truth(sites) else {})
        inputs = {"array": "x", **(inputs or {})}
    else:
        labels["column" if isinstance(label, str) else "columns"] = label
    entries: Entries = {"name": "data"} | {key: described[key] for key in OF_TABLES if key in described}
    entries |= {"labels": labels, "inputs": {} if inputs is None else inputs}
    if "site" in described:
        entries["site_column"] = described["site"]
    if (attribute := described.get("attribute")) is not None:
        entries["attribute"] = dict(attribute) if isinstance(attribute, Mapping) else {"column": attribute}
    return entries


def _check_words(described: Mapping[str, Any]) -> None:
    """Refuse values that are no word where the guesses about the columns need one."""
    for key in OF_WORDS:
        value = described.get(key, "a word")
        if not isinstance(value, str) or not value:
            found = "an empty text" if isinstance(value, str) else f"a value of type {type(value).__name__}"
            raise UsageError(f"{key}=...: found {found}, expected a text; change the value, or leave {key} out")


def _for_tables(sites: Mapping[str, MemoryTable], described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments with columns by their names; refuse tables whose labels or sites are not named."""
    if "label" not in described:
        raise UsageError("label=...: missing; name the column of the labels, or the columns, one per class")
    described = with_names(described, {name for table in sites.values() for name in table.columns})
    if "" in sites and "site" not in described:
        raise UsageError(
            "site=...: missing; name the column that says which site a row belongs to, or hand over {site: table}"
        )
    if "" not in sites and "site" in described:
        raise UsageError(f"site={described['site']!r}: the sites are named by the keys of data; leave it out")
    return described


def _for_arrays(sites: Mapping[str, MemoryTable], described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as they are; refuse arrays of no site, and arguments that name columns."""
    if "" in sites:
        raise UsageError("data: arrays of no site; hand over {site: (x, labels)}, one pair per site")
    columns = [key for key in ("label", "site", "id", "group", "attribute") if key in described]
    if not isinstance(described.get("inputs", {}), Mapping):
        columns.append("inputs")
    if columns:
        raise UsageError(f"{columns[0]}=...: arrays have no columns; leave it out")
    return described


def _have_truth(sites: Mapping[str, MemoryTable]) -> bool:
    """Return whether arrays come with the truth; refuse some that do beside others that do not."""
    without = [table for table in sites.values() if "truth" not in table.columns]
    if without and len(without) < len(sites):
        raise UsageError(
            f"{without[0]}: no truth, which other sites have; hand over (x, labels, truth) for all or none"
        )
    return not without


def _as_toml(value: Any) -> Any:
    """Return a value as TOML would hold it."""
    if isinstance(value, Mapping):
        return {key: _as_toml(part) for key, part in value.items()}
    if hasattr(value, "tolist"):  # arrays, series, and the unique values of one
        return _as_toml(value.tolist())
    return [_as_toml(part) for part in value] if isinstance(value, list | tuple | set | frozenset) else value


# -- messages ----------------------------------------------------------------------------------------------------------


def _refuse_arguments(problems: Problems) -> None:
    """Raise one error with the first problem of every argument: further ones may follow from it."""
    first: dict[str, str] = {}
    for problem in map(_as_argument, problems.kept):
        first.setdefault(str(problem.file), str(problem))
    if first:
        raise UsageError("\n".join(first.values()))


def refuse(problems: Problems) -> None:
    """Raise one error with all problems, on a line of its own if there is only one."""
    if not problems:
        return
    kept = [_as_argument(problem) for problem in problems.kept]
    if len(problems) == 1:
        raise DataError(str(kept[0]))
    lines = replace(problems, kept=kept).lines()
    raise DataError(f"{len(problems):,} problems with the data" + "".join(f"\n  {line}" for line in lines))


def _as_argument(problem: Problem) -> Problem:
    """Return a problem of a declaration as one of the argument that it was made from."""
    if problem.file != Path(FILE):
        return problem
    key = problem.column or ""
    first = key.removeprefix("labels.").partition(".")[0]
    argument = SHORT.get(key) or SHORT.get(first) or first
    return replace(problem, file=MemoryTable(f"{argument}=...", {}, 0), column=None)
