"""The commands for data before training: example, inspect."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Json
from imperfed.cli.screen import console


def example(
    name: Annotated[
        str, typer.Argument(help="An example's name; without it, all are listed.", autocompletion=completion.examples)
    ] = "",
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A new or empty folder; default: one of the example's name.")
    ] = "",
) -> None:
    """Write an example federation, made on the spot: files of several sites to try everything on; no download."""
    if not name:
        from imperfed.cli.listing import listing

        listing("examples", False, console())
        typer.echo("Write one: imperfed example NAME DIR")
        return
    from imperfed.examples import example as write_example
    from imperfed.examples import examples

    path = write_example(name, folder)
    typer.echo(f"{path}: federation.toml, files of every site, and README.md, which says what they are. Next:")
    for command in examples()[name]().typed_commands(shlex.quote(str(path))):
        typer.echo(f"  {command}")


def inspect(
    path: Annotated[Path, typer.Argument(help="A folder of files, one file, or a federation.toml.")],
    label: Annotated[str, typer.Option(help="The column of the labels, if its name does not say so.")] = "",
    site: Annotated[str, typer.Option(help="In one file for all sites: the column of the site.")] = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Picture file; default: census.png beside federation.toml.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what your files hold, site by site, and which methods can learn from it; guess a missing federation.toml."""
    from imperfed.census.inspect import document, inspect
    from imperfed.census.pictures import draw_all, paths

    inspection = inspect(path, label, site)
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
