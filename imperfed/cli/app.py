"""The command line. Imports nothing heavy at the top, so that `--help` responds at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import typer.core

from imperfed import __version__
from imperfed.cli import (
    catalogue_commands,
    data_commands,
    folder_commands,
    label_commands,
    leak_command,
    new_project,
    site_commands,
    sweep_command,
    training_commands,
)
from imperfed.cli.options import SETTINGS
from imperfed.core.errors import ImperfedError

typer.core.HAS_RICH = False  # help is plain text; typer would otherwise escape its brackets for rich
app = typer.Typer(
    name="imperfed",
    help="Federated learning from imperfect labels: any method, on your data, one report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,  # click does
)

INTERRUPTED = 130


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"imperfed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command(epilog=SETTINGS)(training_commands.run)
app.command(epilog=SETTINGS)(training_commands.compare)
app.command(epilog=SETTINGS)(sweep_command.sweep)
app.command(epilog=SETTINGS)(training_commands.reproduce)
app.command()(training_commands.resume)
app.command()(folder_commands.evaluate)
app.command()(folder_commands.predict)
app.command()(folder_commands.export)
app.command()(folder_commands.report)
app.command()(folder_commands.status)
app.command()(folder_commands.watch)
app.command()(data_commands.example)
app.command()(data_commands.inspect)
app.command(epilog=SETTINGS)(label_commands.audit)
app.command(epilog=SETTINGS)(label_commands.repair)
app.command(epilog=SETTINGS)(leak_command.leak)
app.command(name="list")(catalogue_commands.list_)
app.command()(catalogue_commands.show)
app.command(epilog=SETTINGS)(catalogue_commands.schema)
app.command()(site_commands.keys)
app.command(epilog=SETTINGS)(site_commands.serve)
app.command()(site_commands.join)
app.command()(site_commands.policy)
app.add_typer(new_project.app, name="new")


def main() -> None:
    """Run the command line; every error that a user can fix ends in one message and its exit code."""
    try:
        app(prog_name="imperfed")  # also as `python -m imperfed`: the completion's variable is named after it
    except ImperfedError as error:
        print(error if error.exit_code == INTERRUPTED else f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # such as a full disk, or a folder that was removed
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
