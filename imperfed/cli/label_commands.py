"""The commands for labels alone: audit, repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Features, JsonOnly, Set
from imperfed.cli.screen import console, stdout_for
from imperfed.cli.typed_words import assigned, given

if TYPE_CHECKING:
    from rich.console import Console

    from imperfed.label_audit.audit_summary import AuditSummary
    from imperfed.label_audit.rewriting import RepairRecord

Labelled = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A folder of files, one file, a federation.toml, or a dataset's name.",
        autocompletion=completion.datasets,
    ),
]


def audit(
    path: Labelled,
    out: Annotated[
        Path | None, typer.Option("--out", help="The new folder to write; default: one below audits/.")
    ] = None,
    features: Features = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    json: JsonOnly = False,
) -> None:
    """Find the labels that are probably wrong, site by site. No model is trained, and no file of yours is changed."""
    from imperfed.label_audit.audit_folder import audit as judge_labels
    from imperfed.label_audit.audit_settings import audit_config
    from imperfed.label_audit.audit_table import print_audit
    from imperfed.label_audit.audited_rows import load_rows

    screen = console(stderr=json)
    with stdout_for(json):
        config = audit_config(path, assigned(settings) | given(**{"repair.features": features}))
        data, guessed = load_rows(config)
        for sentence in guessed:
            screen.print(f"guessed: {sentence}")
        folder, summary = judge_labels(config, data, out)
    print_audit(screen, summary, folder)
    if json:
        typer.echo(summary.to_json())


def repair(
    path: Labelled,
    out: Annotated[Path, typer.Option("--out", help="The new folder to write.")],
    features: Features = None,
    settings: Set = [],  # noqa: B006
    undo: Annotated[bool, typer.Option("--undo", help="Write repaired files as they were before.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Repair even if the features say too little.")] = False,
    audited: Annotated[
        Path | None,
        typer.Option("--audit", help="A site's folder of an audit with other sites; PATH is then the site's own file."),
    ] = None,
) -> None:
    """Write your files again with corrected labels, in a new folder; a further column keeps the labels as given."""
    from imperfed.core.errors import UsageError
    from imperfed.label_audit.audit_settings import audit_config
    from imperfed.label_audit.rewriting import repair_files
    from imperfed.label_audit.rewriting import undo as undo_repair
    from imperfed.label_audit.site_repair import repair_own_file

    screen = console()
    if undo:
        if features or settings or force or audited:
            raise UsageError("--undo takes no settings: it needs nothing but the folder of repaired files")
        record = undo_repair(Path(path), out)
        screen.print(f"{sum(record.changed.values())} labels as they were given; written\n  {out}")
        return
    if audited is not None:
        if features or settings or force:
            raise UsageError("--audit takes no settings: the labels were judged with those of the audit")
        say_repaired(screen, *repair_own_file(Path(path), audited, out), out)
        return
    config = audit_config(path, assigned(settings) | given(**{"repair.features": features}))
    say_repaired(screen, *repair_files(config, out, force), out)


def say_repaired(screen: Console, summary: AuditSummary, record: RepairRecord, out: Path) -> None:
    """Print how many labels were changed, where caution is needed, and how to go back."""
    for site, number in record.changed.items():
        screen.print(f"{site}: {number} labels changed")
    changed = sum(record.changed.values())
    screen.print(f"{changed} of {summary.rows} labels changed; {record.column} keeps them as given")
    for caution in summary.cautions:
        screen.print(f"be careful: {caution}")
    screen.print(f"written\n  {out}\nundo with: imperfed repair {out} --undo --out FOLDER")
