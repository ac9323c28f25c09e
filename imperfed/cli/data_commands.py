"""The command for data before training: inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imperfed.cli.options import Json
from imperfed.cli.screen import console


def inspect(
    path: Annotated[Path, typer.Argument(help="A folder of files, one file, or a federation.toml.")],
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Picture file; default: census.png beside federation.toml.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what your files hold, site by site, and which methods can learn from it; guess a missing federation.toml."""
    from imperfed.census.inspect import document, inspect
    from imperfed.census.pictures import draw_all, paths

    inspection = inspect(path)
    place, failed = picture or inspection.declaration.folder / "census.png", None
    try:
        drawn = draw_all(inspection, place)
    except OSError as error:
        drawn, failed = {}, error
    if json:
        from json import dumps

        typer.echo(dumps(document(inspection) | paths(drawn), indent=2, ensure_ascii=False))
    else:
        from imperfed.census.console import print_inspection

        print_inspection(inspection, console(), drawn)
    if failed and picture:
        raise failed
    if failed:
        typer.echo(f"warning: picture not drawn ({failed.strerror}: {place}); use --picture FILE", err=True)
