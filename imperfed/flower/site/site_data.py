"""From files to what a site holds, and what the coordinator holds itself: as one process reads them, part by part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from imperfed.experiments.config import Config
from imperfed.data.site_files import ServerFiles, SiteFiles
from imperfed.data.own_files import COUNT, Part, cut_files, join, parts_of, refuse_settings, told_truly, true_test_groups
from imperfed.data.split import SplitConfig
from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Attribute, Trusted
from imperfed.data.files.declaration import Declaration, parse
from imperfed.data.files.problems import Problems
from imperfed.data.files.rows import CLEAN, PUBLIC, SITE, FileRows, read_rows
from imperfed.data.files.reading import SiteReading, Reading
from imperfed.core.labels import Exact


def refuse(config: Config, declaration: Declaration) -> None:
    """Refuse settings that the files settle, and those by which rows would leave a site."""
    refuse_settings(declaration, replace(config.split, standardise=SplitConfig.standardise), config.labels)
    for name in COUNT:
        if name != "test" and getattr(config.split, name):
            raise UsageError(f"split.{name}: real sites give no rows away; declare a file {name} in {declaration.file}")


def holding_of(name: str, data: Path, test: Path | None, config: Config, declared: str) -> SiteFiles:
    """What a site holds: its own files, read as the coordinator's declaration says."""
    declaration, problems = parse(declared), Problems()
    rows = read_rows(data, declaration, SITE, problems)
    clean = read_rows(test, declaration, CLEAN, problems) if test else None
    problems.check(str(data))
    assert rows is not None
    # Its test rows are of its own file, whatever the others have.
    declaration = replace(declaration, test=str(test or ""), site_column="", public="", trusted="")
    found = Reading(declaration, (SiteReading(name, rows, clean),))
    parts = parts_of(found)
    dataset, labels, at = join(declaration, parts)
    cut = cut_files(found, dataset, at, replace(config.split, public=0.0, trusted=0.0), config.run.data_seed)
    [train], [tests] = cut.train, cut.test
    groups = true_test_groups(parts, dataset, cut)
    return SiteFiles(
        name,
        dataset.x[train],
        labels.take(train),
        tuple(dataset.ids[row] for row in train.tolist()),
        dataset.classes,
        (dataset.x[tests], dataset.y[tests]) if len(tests) and dataset.y is not None else None,
        groups[0] if groups else None,
        dataset.y[train] if told_truly(found) and dataset.y is not None else None,
        dataset.attribute,
        scales=declaration.inputs.standardise is not False,
    )


def central_of(declaration: Declaration) -> ServerFiles:
    """What the coordinator holds: a test set for all, public inputs, trusted rows."""
    problems, parts = Problems(), dict[Part, FileRows]()
    common = declaration.test if isinstance(declaration.test, str) and "*" not in declaration.test else ""
    for what, path, use in (
        ("common", common, CLEAN),
        ("public", declaration.public, PUBLIC),
        ("trusted", declaration.trusted, CLEAN),
    ):
        if path and (rows := read_rows(declaration.folder / path, declaration, use, problems)):
            parts[what, 0] = rows
    problems.check(str(declaration.file))
    classes, public = declaration.labels.classes, parts.get(("public", 0))
    return ServerFiles(
        declaration.name,
        classes,
        None if public is None else public.x,
        trusted_of(parts.get(("trusted", 0)), len(classes)),
        measured_on(parts.get(("common", 0))),
        attribute=attribute_of(declaration, parts),
    )


def measured_on(rows: FileRows | None) -> tuple[Tensor, Tensor] | None:
    """Inputs and true classes."""
    return None if rows is None or rows.truth is None else (rows.x, rows.truth)


def trusted_of(rows: FileRows | None, classes: int) -> Trusted | None:
    """Rows at the server, each with its true class."""
    if rows is None:
        return None
    if rows.truth is None or rows.truth.ndim > 1:
        raise DataError(f"{rows.table.file}: rows at the server need one true class each")
    return Trusted(rows.x, Exact(rows.truth, classes))


def attribute_of(declaration: Declaration, parts: dict[Part, FileRows]) -> Attribute | None:
    """The sensitive attribute: its groups are the last columns, after the numbers and the categories."""
    if (said := declaration.attribute) is None:
        return None
    inputs = declaration.inputs
    first = len(inputs.numeric) + sum(map(len, inputs.categorical.values()))
    if parts and next(iter(parts.values())).x.shape[1] != first + len(said.values):
        raise DataError(f"{declaration.file}: an attribute goes with tables of numbers and categories")
    return Attribute(said.column, said.values, first)
