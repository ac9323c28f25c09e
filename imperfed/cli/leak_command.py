"""The command that attacks a round as its coordinator could: leak."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Data, JsonOnly, Model, Set
from imperfed.cli.screen import console, stdout_for
from imperfed.cli.typed_words import config_of, given, words_of
from imperfed.core.errors import UsageError

if TYPE_CHECKING:
    from imperfed.leakage.leak_run import LeakOptions
    from imperfed.results.leak_summary import LeakSummary


def leak(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NAME",
            help="A run's folder; or a method or an experiment file (.toml), with --data and --set.",
            autocompletion=completion.methods,
        ),
    ],
    data: Data = "",
    model: Model = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    sites: Annotated[int, typer.Option("--sites", help="How many sites to attack.")] = 4,
    trained: Annotated[
        bool, typer.Option("--trained", help="Attack the round after the run's last one, not its first.")
    ] = False,
    iterations: Annotated[int, typer.Option("--iterations", help="Steps of the search for rows.")] = 500,
    dishonest: Annotated[
        bool, typer.Option("--dishonest", help="Let the coordinator send weights chosen to single out rows.")
    ] = False,
    json: JsonOnly = False,
) -> None:
    """Say what a curious coordinator could reconstruct of the sites' rows and labels from one round.

    Of a run's folder, the findings are written into it: leak.json and its report. Of a method, nothing is written.
    """
    from imperfed.leakage.leak_run import LeakOptions
    from imperfed.results.leak_summary import LIMITS

    options = LeakOptions(sites, trained, iterations, dishonest)
    screen = console(stderr=json)
    with stdout_for(json):
        words = words_of(settings, model=model) | given(data=data or None)
        summary = _of_folder(Path(what), words, options) if Path(what).is_dir() else _of_method(what, words, options)
    screen.print(str(summary))
    for line in ("What this does not show:", *(f"- {limit}" for limit in LIMITS)) if summary.sites else ():
        screen.print(line)
    if Path(what).is_dir():
        caution = "; they hold real rows, so keep them where the rows may be" if summary.pairs else ""
        screen.print(f"written{caution}\n  {Path(what) / 'leak.json'}\n  {Path(what) / 'report.html'}")
    if json:
        typer.echo(summary.to_json())


def _of_folder(path: Path, words: dict[str, str], options: LeakOptions) -> LeakSummary:
    from imperfed.leakage.leak_run import leak_of_folder
    from imperfed.results.folder import RunFolder

    if words:
        raise UsageError(
            f"{next(iter(words))}: the settings of {path} are in its folder; for other ones, type the name of a method "
            "in place of the folder"
        )
    return leak_of_folder(RunFolder.open(path), options)


def _of_method(name: str, words: dict[str, str], options: LeakOptions) -> LeakSummary:
    from imperfed.leakage.leak_run import leak_of_settings

    return leak_of_settings(config_of(name, words), options)
