"""A real site's own file with corrected labels, from what an audit left in its state folder; nothing is contacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.declaration import FILE, Declaration, parse
from imperfed.data.files.reading import Reading, SiteReading, read_site
from imperfed.label_audit.audit_folder import check_new
from imperfed.label_audit.audit_summary import AuditSummary
from imperfed.label_audit.audited_rows import DeclaredFiles
from imperfed.label_audit.rewriting import RepairRecord, refuse_unwritable, write_repaired_files
from imperfed.results.damaged_files import parse_file

Judged = list[dict[str, str]]
"""The rows of a label file."""


def repair_own_file(data: Path, audited: Path, out: Path) -> tuple[AuditSummary, RepairRecord]:
    """Write a site's file with the labels that an audit decided to change into a new folder, with a federation.toml."""
    check_new(out)
    site, summary = read_own_audit(audited)
    if not summary.trusted:
        raise DataError(f"{audited}: nothing written. {summary.advice}")
    if not data.exists():
        raise DataError(f"{data}: no such file")
    declaration = own_declaration(audited / FILE, site, data)
    held = read_site(site, data, None, declaration)
    reading = Reading(declaration, (held,))
    refuse_unwritable(reading)
    judged = read_labels(audited, site)
    refuse_changed(data, held, judged, declaration.labels.classes)
    new = {at: row["suggested"] for at, row in zip(held.rows.at.tolist(), judged, strict=True) if decided(row)}
    files = DeclaredFiles(reading, declaration.toml())
    return summary, write_repaired_files(files, summary, {data: new}, out)


def read_own_audit(audited: Path) -> tuple[str, AuditSummary]:
    """Return the site whose labels an audit judged, and the findings about them."""
    labels = sorted((audited / "labels").glob("*.parquet"))
    if len(labels) != 1 or not (audited / "audit.json").is_file() or not (audited / FILE).is_file():
        raise UsageError(
            f"{audited}: not what an audit with real sites left at one of them: a folder below the site's --state "
            f"with audit.json, {FILE} and the labels of this site"
        )
    return labels[0].stem, parse_file(audited / "audit.json", AuditSummary.from_json, "take part in the audit again")


def read_labels(audited: Path, site: str) -> Judged:
    """Return the judgement of every label."""
    import pyarrow
    from pyarrow import parquet

    path = audited / "labels" / f"{site}.parquet"
    try:
        rows: Judged = parquet.read_table(path, columns=["id", "given", "suggested", "decision"]).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cut short or damaged ({error}); take part in the audit again") from error
    return rows


def decided(row: Mapping[str, str]) -> bool:
    """Return whether a label is to be changed."""
    return row["decision"] == "change"


def own_declaration(file: Path, site: str, data: Path) -> Declaration:
    """Return the audit's declaration as it holds for this site alone, whose file lies in its folder."""
    declared = parse(file.read_text(encoding="utf-8"), data.parent / FILE)
    delimiter, decimal = (
        where.get(site, "") if isinstance(where, Mapping) else where for where in (declared.delimiter, declared.decimal)
    )
    alone = replace(declared, sites={site: data.name}, site_column="", delimiter=delimiter, decimal=decimal)
    return replace(alone, test="", public="", trusted="")


def refuse_changed(data: Path, held: SiteReading, judged: Judged, classes: tuple[str, ...]) -> None:
    """Refuse a file that is not the one whose labels were judged: the first row that differs is named."""
    labels = held.rows.labels
    assert labels is not None
    now = zip(held.rows.ids(), (classes[c] for c in labels.values.tolist()), strict=True)
    before = ((row["id"], row["given"]) for row in judged)
    for number, (here, there) in enumerate(zip_longest(now, before), 1):
        if here != there:
            here_said, there_said = (
                "no such row" if one is None else f"id {one[0]}, label {one[1]}" for one in (here, there)
            )
            raise DataError(
                f"{data}: not the file whose labels were judged. Row {number} has {here_said} now, and had "
                f"{there_said} in the audit; hand over the file as it was, or take part in an audit again"
            )
