"""The user's own files with corrected labels, in a new folder, and the way back."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from imperfed.core.atomic import new_folder
from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Exact
from imperfed.data.files.declaration import FILE, Declaration, read_declaration
from imperfed.data.files.memory import MemoryTable
from imperfed.data.files.reading import Reading, places
from imperfed.data.own_files import all_rows
from imperfed.experiments.config import Config
from imperfed.label_audit.audit_folder import check_new
from imperfed.label_audit.audit_summary import AuditSummary
from imperfed.label_audit.audited_rows import DeclaredFiles, read_declared, refuse_without_files
from imperfed.label_audit.findings import summarise
from imperfed.label_audit.formats import Place, format_of
from imperfed.label_audit.judging import judge
from imperfed.repairs.features import resolved
from imperfed.repairs.posterior import PosteriorRepair

RECORD = "repair.json"
"""What a folder of repaired files says about itself."""
GIVEN = "label_given"
"""The column of the labels as they were given."""


@dataclass(frozen=True)
class RepairRecord:
    """What was done to the files of a folder."""

    column: str
    """The column that was added."""
    changed: Mapping[str, int]
    """How many labels were changed, by site."""
    rows: int
    method: str
    features: str
    clean_rows: int


# -- forth -------------------------------------------------------------------------------------------------------------


def repair_files(config: Config, out: Path, force: bool = False) -> tuple[AuditSummary, RepairRecord]:
    """Write the files of `run.data` with corrected labels into a new folder, with their federation.toml."""
    check_new(out)
    refuse_without_files(config.run.data)
    files = read_declared(Path(config.run.data))
    declaration = files.reading.declaration
    refuse_unwritable(files.reading)
    assert isinstance(config.repair, PosteriorRepair)
    data = files.federate(config)
    judged = judge(replace(config.repair, insist=config.repair.insist or force), data)
    summary = summarise(judged, config.repair.name, resolved(config.repair.features, judged.federation.x))
    if not summary.trusted and not force:
        raise DataError(
            f"{declaration.name}: nothing written. {summary.advice} `imperfed audit` says more; --force repairs all "
            "the same"
        )
    changes = changes_by_file(files.reading, judged.result.decided.tolist(), judged.result.given.tolist())
    return summary, write_repaired_files(files, summary, changes, out)


def write_repaired_files(
    files: DeclaredFiles, summary: AuditSummary, changes: Mapping[Path, Mapping[int, str]], out: Path
) -> RepairRecord:
    """Write files with other labels into a new folder, with a record of what was done."""
    column = free_column(changes)
    changed = {site.site: site.changes for site in summary.sites}
    record = RepairRecord(column, changed, summary.rows, summary.method, summary.features, summary.clean_rows)
    with new_folder(out) as folder:
        write_files(files, folder, changes, column)
        (folder / RECORD).write_text(json.dumps(asdict(record), indent=2, ensure_ascii=False), encoding="utf-8")
    return record


def refuse_unwritable(reading: Reading) -> None:
    """Refuse labels and files that cannot be written again, before anything is computed."""
    declaration = reading.declaration
    if declaration.labels.kind != Exact.kind:
        raise UsageError(
            f"{declaration.name}: repair changes {Exact.title}, one class per row; these are {declaration.labels.kind}"
        )
    for rows in all_rows(reading):
        file = rows.table.file
        assert isinstance(file, Path)
        inside(file, declaration)
        if format_of(file) is None:
            raise UsageError(
                f"{file}: labels can be written again in .csv, .tsv, .parquet and .npz files, and folders of images"
            )


def inside(file: Path, declaration: Declaration) -> Path:
    """Return the path of a file within the folder of its declaration; refuse one that is elsewhere."""
    folder = Path(os.path.abspath(declaration.folder))
    path = Path(os.path.abspath(file))
    if not path.is_relative_to(folder):
        raise UsageError(
            f"{file}: outside of {declaration.folder}, which is what is written again; move it there, or {FILE} up"
        )
    return path.relative_to(folder)


def changes_by_file(reading: Reading, decided: list[int], given: list[int]) -> dict[Path, dict[int, str]]:
    """Return the new labels of all files of sites, by file and row."""
    classes, start = reading.declaration.labels.classes, 0
    changes: dict[Path, dict[int, str]] = defaultdict(dict)
    for site in reading.sites:
        file = site.rows.table.file
        assert not isinstance(file, MemoryTable)
        own = changes[file]
        for row, number in enumerate(site.rows.at.tolist(), start):
            if decided[row] != given[row]:
                own[number] = classes[decided[row]]
        start += len(site.rows)
    return changes


def free_column(files: Mapping[Path, object]) -> str:
    """Return a name for the column of the given labels that no file has yet."""
    taken = {name for file in files for name in columns_of(file)}
    name, number = GIVEN, 1
    while name in taken:
        number += 1
        name = f"{GIVEN}_{number}"
    return name


def columns_of(file: Path) -> list[str]:
    """Return the names that a file has taken: its columns, its arrays, or the lists in its folder."""
    from pyarrow import parquet

    from imperfed.data.readers import read_arrays
    from imperfed.label_audit.formats.text_labels import header

    if file.is_dir():
        return [path.stem for path in file.glob("*.csv")]
    if file.suffix.lower() == ".parquet":
        return [*parquet.read_schema(file).names]
    if file.suffix.lower() == ".npz":
        return [*read_arrays(file)]
    # Under any delimiter the name stands between other characters; splitting by all of them finds too much at worst.
    return [name.strip('" ') for mark in ",;\t|" for name in header(file, mark)]


def write_files(files: DeclaredFiles, folder: Path, changes: Mapping[Path, Mapping[int, str]], column: str) -> None:
    """Write the sites' files with other labels; copy all others that the declaration names, and itself."""
    declaration = files.reading.declaration
    place = place_of(declaration, column)
    for rows in all_rows(files.reading):
        file = rows.table.file
        assert isinstance(file, Path)
        target = folder / inside(file, declaration)
        if file in changes and not target.exists():
            form = format_of(file)
            assert form is not None
            form.rewrite(file, target, place, changes[file])
        elif not target.exists():
            copy(file, target)
        image = declaration.inputs.image
        for path in rows.table.columns[image].to_pylist() if image else ():
            if not Path(path).is_absolute() and not (target.parent / path).exists():
                copy(file.parent / path, folder / inside(file.parent / path, declaration))
    (folder / FILE).write_text(files.text, encoding="utf-8")


def place_of(declaration: Declaration, column: str) -> Place:
    """Return where files keep labels."""
    declared = declaration.delimiter
    delimiter = declared if isinstance(declared, str) else ""  # by site: found file by file
    return Place(declaration.labels.column, column, delimiter, declaration.labels.classes)


# -- and back ----------------------------------------------------------------------------------------------------------


def undo(repaired: Path, out: Path) -> RepairRecord:
    """Write repaired files as they were before the repair into a new folder."""
    check_new(out)
    try:
        record = RepairRecord(**json.loads((repaired / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{repaired}: not a folder that `imperfed repair` wrote: no readable {RECORD} ({error})"
        ) from error
    declaration = read_declaration(repaired)
    place = place_of(declaration, record.column)
    with new_folder(out) as folder:
        shutil.copytree(repaired, folder, dirs_exist_ok=True, ignore=lambda _, names: {RECORD} & {*names})
        for file in set(places(declaration.sites, repaired).values()):
            target = folder / inside(file, declaration)
            form = format_of(file)
            assert form is not None
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            form.restore(file, target, place)
    return record


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
