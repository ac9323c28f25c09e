"""The commands for the catalogue and its settings: list, show, schema."""

from __future__ import annotations

from typing import Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Json, Method, Set
from imperfed.cli.screen import console
from imperfed.cli.typed_words import assigned, config_of


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="algorithms, repairs, attacks, defences, privacy, labels, partitions, candidates, noise, annotations, "
            "datasets, examples, models or studies.",
            autocompletion=completion.lists,
        ),
    ] = "algorithms",
    json: Json = False,
) -> None:
    """List the entries of the catalogue."""
    from imperfed.cli.listing import listing

    listing(what, json, console())


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from any of the lists, or package.module:Class.", autocompletion=completion.any_name
        ),
    ],
    json: Json = False,
) -> None:
    """Show one entry of the catalogue: symbols, settings, source file."""
    from imperfed.cli.listing import show as show_entry

    show_entry(name, json, console())


def schema(
    what: Method = None,
    settings: Set = [],  # noqa: B006
) -> None:
    """Print a JSON schema of experiment files, for editors; with a name, including the settings of that method."""
    from json import dumps

    from imperfed.experiments.resolving import resolve
    from imperfed.experiments.schema import file_schema

    words = assigned(settings)
    config = resolve(words=words) if what is None else config_of(what, words)
    typer.echo(dumps(file_schema(config, any_parts=what is None), indent=2, ensure_ascii=False))
