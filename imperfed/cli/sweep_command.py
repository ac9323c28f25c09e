"""The command that tries a small grid of settings: sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Data, Device, JsonOnly, Model, Out, Rounds, Seeds, Set, Workers
from imperfed.cli.screen import progress, stdout_for
from imperfed.cli.typed_words import configs, given, seed_numbers, words_of

Grid = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=A,B...",
        help="Settings and the values to try: lr=0.01,0.1 batch=16,32; lists as 'hidden=64;32'.",
    ),
]


def sweep(
    method: Annotated[
        str,
        typer.Argument(
            help="A method's name; with settings for all trials: 'fedprox mu=1'.", autocompletion=completion.methods
        ),
    ],
    grid: Grid,
    data: Data = "",
    seeds: Seeds = "0",
    rounds: Rounds = None,
    model: Model = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    jobs: Annotated[int, typer.Option("--jobs", help="Trials in parallel, one process each.")] = 1,
    out: Out = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Try every combination of some settings; choose by rows that the sites hold out, and test what was chosen."""
    from imperfed.experiments.parallel import ParallelRuns
    from imperfed.experiments.sweep.sweep_grid import grid_of, named
    from imperfed.experiments.sweep.sweep_run import sweep as try_all

    values, numbers = grid_of(grid), seed_numbers(seeds)
    words = words_of(settings, rounds=rounds, model=model, device=device, workers=workers) | given(data=data or None)
    make, show = configs(words), progress(json)
    with stdout_for(json), show.interruptible(), ParallelRuns(jobs) as processes:
        folder, results = try_all(
            method,
            values,
            numbers,
            lambda cell, seed: make(f"{method} {named(cell)}", seed),
            out,
            show.watch,
            processes,
        )
    sweep_ended(folder, results, json)


def sweep_ended(folder: Path, results: dict[str, object], json: bool = False) -> None:
    """Print the table of a sweep and the paths of what it wrote."""
    from imperfed.cli.sweep_table import sweep_table

    sweep_table(progress(json).console, results, folder)
    if json:
        typer.echo((folder / "results.json").read_text(encoding="utf-8"))
