"""The command line. Imports nothing heavy at the top, so that `--help` responds at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import typer.core

from imperfed import __version__
from imperfed.cli import (
    benchmark_command,
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
from imperfed.cli.command_groups import GroupedCommands
from imperfed.cli.options import SETTINGS
from imperfed.core.errors import ImperfedError, where_memory_ran_out

typer.core.HAS_RICH = False  # help is plain text; typer would otherwise escape its brackets for rich
app = typer.Typer(
    name="imperfed",
    cls=GroupedCommands,
    help="Federated learning from imperfect labels: any method, on your data, one report.",
    epilog="Begin with: imperfed run (a demo), or imperfed example (files to try everything on).",
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


app.command(epilog=SETTINGS, short_help="Train one method, or search for the best model.")(training_commands.run)
app.command(epilog=SETTINGS, short_help="Train several methods on the same splits; one table.")(
    training_commands.compare
)
app.command(epilog=SETTINGS, short_help="Try every combination of some settings.")(sweep_command.sweep)
app.command(epilog=SETTINGS, short_help="Reproduce a paper's table or figure.")(training_commands.reproduce)
app.command(epilog=benchmark_command.HELP, short_help="Compare all methods for a kind of labels, tuned alike.")(
    benchmark_command.benchmark
)
app.command(short_help="Continue what was interrupted.")(training_commands.resume)
app.command(short_help="Compute a run's figures again from its models.")(folder_commands.evaluate)
app.command(short_help="Apply a run's models to new rows.")(folder_commands.predict)
app.command(short_help="Write a model that runs without imperfed.")(folder_commands.export)
app.command(short_help="Write report.html again.")(folder_commands.report)
app.command(short_help="Say how far a run is.")(folder_commands.status)
app.command(short_help="Show a run in progress as a page.")(folder_commands.watch)
app.command(short_help="Write example files of several sites.")(data_commands.example)
app.command(short_help="Show what files hold, and which methods fit.")(data_commands.inspect)
app.command(epilog=SETTINGS, short_help="Find labels that are probably wrong.")(label_commands.audit)
app.command(epilog=SETTINGS, short_help="Write your files again with corrected labels.")(label_commands.repair)
app.command(epilog=SETTINGS, short_help="Say what a curious coordinator could reconstruct.")(leak_command.leak)
app.command(name="list", short_help="List methods, datasets, models and more.")(catalogue_commands.list_)
app.command(short_help="Show one of them: paper, settings, source file.")(catalogue_commands.show)
app.command(epilog=SETTINGS, short_help="Print a JSON schema of experiment files.")(catalogue_commands.schema)
app.command(short_help="Make the certificates and keys of all sites.")(site_commands.keys)
app.command(epilog=SETTINGS, short_help="Coordinate a run with real sites.")(site_commands.serve)
app.command(short_help="Take part in a run as a site.")(site_commands.join)
app.command(short_help="Write what a site allows, to begin with.")(site_commands.policy)
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
    except (MemoryError, RuntimeError) as error:
        if (where := where_memory_ran_out(error)) is None:
            raise
        print(
            f"error: {where} has too little memory for this; fewer processes (--jobs, --workers), a smaller "
            "local.batch or a smaller model need less, and what had ended is kept",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
