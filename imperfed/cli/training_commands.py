"""The commands that train: run, compare, reproduce, resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from imperfed.cli import completion, site_commands
from imperfed.cli.options import (
    Alone,
    Budget,
    Data,
    Device,
    Jobs,
    Json,
    JsonOnly,
    Method,
    Model,
    Out,
    Rounds,
    Seed,
    Seeds,
    Set,
    Track,
    Workers,
)
from imperfed.cli.screen import progress, stdout_for
from imperfed.cli.typed_words import configs, given, seed_numbers, sources_of, words_of
from imperfed.core.errors import UsageError

DEMO = ("pfedpll", "fedavg+lcp", "local-only+lcp", "pooled+lcp")


def run(
    what: Method = None,
    data: Data = "",
    rounds: Rounds = None,
    model: Model = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    track: Track = None,
    budget: Budget = None,
    out: Out = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Train a method; without its name, search for the best model that can be had (`auto`).

    Without --data either: a demo with candidate sets on handwritten digits, beside three references.
    """
    words = words_of(settings, rounds=rounds, model=model, device=device, workers=workers, track=track)
    words |= given(data=data or None)
    if what is None and not data:
        _compare(DEMO, [seed or 0], words, out, json=json)
        return
    from imperfed.cli.tables import run_table
    from imperfed.experiments.auto.run import start_any

    file, words = sources_of(what or "auto", words | given(seed=seed, budget=budget))
    show = progress(json)
    with stdout_for(json), show.interruptible():
        folder, summary = start_any(file, words, out, show.watch())
    run_table(show.console, summary, folder.path)
    if json:
        typer.echo(summary.to_json())


def compare(
    methods: Annotated[
        str,
        typer.Argument(
            help="Names with their settings, comma-separated: 'fedprox mu=1, fedavg'; or a study.toml.",
            autocompletion=completion.several_methods,
        ),
    ],
    data: Data = "",
    seeds: Seeds = "0",
    rounds: Rounds = None,
    model: Model = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006
    track: Track = None,
    jobs: Jobs = 0,
    alone: Alone = True,
    out: Out = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Train several methods on the same splits and print one table."""
    numbers = seed_numbers(seeds)
    words = words_of(settings, rounds=rounds, model=model, device=device, workers=workers, track=track)
    words |= given(data=data or None)
    if methods.endswith(".toml"):
        from imperfed.experiments.study import one_column, read_study

        rows, own, paper = one_column(read_study(methods))
        _compare(rows, numbers, own | words, out, paper, jobs, json, alone)
        return
    names = [name.strip() for name in methods.split(",") if name.strip()]
    _compare(names, numbers, words, out, jobs=jobs, json=json, alone=alone)


def reproduce(
    study: Annotated[
        str | None,
        typer.Argument(help="A paper's table or figure, such as pfedpll/table-4.2.", autocompletion=completion.studies),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List every table and figure, and how far each is.")] = False,
    only: Annotated[str, typer.Option("--only", help="Columns of the table, comma-separated; empty: all.")] = "",
    rows: Annotated[str, typer.Option("--rows", help="Rows of the table, comma-separated; empty: all.")] = "",
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Give every method the same small search on rows held out first.")
    ] = False,
    seeds: Seeds = "0,1,2",
    rounds: Rounds = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006
    jobs: Jobs = 0,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Reproduce a paper's table or figure: the paper's figures beside ours. The same command goes on where it was."""
    if listed or study is None:
        if study is not None or not listed:
            raise UsageError("name a table or figure, such as pfedpll/table-4.2; --list, without a name, lists all")
        from imperfed.cli.standings import standings_table

        standings_table(progress().console, json)
        return
    from imperfed.experiments.reproduction.run_study import DRAWING, RESULTS, TABLE, StudyRuns, chosen, chosen_rows
    from imperfed.experiments.study import read_study
    from imperfed.experiments.tuning import Tuning

    wanted = read_study(study)
    columns = chosen(wanted, [name.strip() for name in only.split(",") if name.strip()])
    methods = chosen_rows(wanted, [name.strip() for name in rows.split(",") if name.strip()])
    words = words_of(settings, rounds=rounds, device=device, workers=workers)
    show = progress(json)
    tuning = Tuning() if tuned else None
    runs = StudyRuns(wanted, columns, seed_numbers(seeds), words, configs, out, show.watch, tuning, methods)
    with stdout_for(json), show.interruptible():
        cells = runs.carry_out(jobs)
    if json:
        typer.echo((runs.folder / RESULTS).read_text(encoding="utf-8"))
        return
    show.console.print(runs.markdown(cells))
    written = [runs.folder / name for name in (TABLE, RESULTS, DRAWING) if (runs.folder / name).exists()]
    show.console.print("\n  ".join(["written", *map(str, written)]))


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, of a comparison or of a sweep.")],
    track: Track = None,
) -> None:
    """Continue what was interrupted or killed; models, and what a sweep chooses, are those of an uninterrupted run."""
    from imperfed.cli.tables import run_table
    from imperfed.experiments.auto.run import resume as continue_run
    from imperfed.experiments.comparison_plan import FILE
    from imperfed.experiments.sweep.sweep_plan import PLAN
    from imperfed.results.folder import RunFolder

    if (folder / FILE).exists():
        if track:
            raise UsageError("--track: the runs of a comparison go on as they began; leave it out")
        _continue_comparison(folder)
        return
    if (folder / PLAN).exists():
        _continue_sweep(folder)
        return
    opened, show = RunFolder.open(folder), progress()
    if opened.served:
        site_commands.serve_on(opened)
        return
    summary = opened.summary()
    if summary is not None:
        show.console.print(f"{folder}: this run has already ended")
    else:
        with show.interruptible():
            summary = continue_run(opened, show.watch(), track=track or "")
    run_table(show.console, summary, folder)


def _continue_comparison(folder: Path) -> None:
    from imperfed.cli.tables import compare_table
    from imperfed.experiments.comparison import continue_comparison
    from imperfed.experiments.parallel import ParallelRuns

    show = progress()
    with show.interruptible(), ParallelRuns(0) as processes:
        lines, seeds = continue_comparison(folder, show.watch, processes)
    compare_table(show.console, lines, seeds, folder)


def _continue_sweep(folder: Path) -> None:
    from imperfed.cli.sweep_command import sweep_ended
    from imperfed.experiments.parallel import ParallelRuns
    from imperfed.experiments.sweep.sweep_plan import SweepPlan
    from imperfed.experiments.sweep.sweep_run import carry_out_sweep

    show = progress()
    with show.interruptible(), ParallelRuns(1) as processes:
        results = carry_out_sweep(SweepPlan.read(folder), folder, show.watch, processes)
    sweep_ended(folder, results)


def _compare(
    names: Sequence[str],
    seeds: list[int],
    words: dict[str, Any],
    out: Path,
    paper: dict[str, float] | None = None,
    jobs: int = 0,
    json: bool = False,
    alone: bool = False,
) -> None:
    from imperfed.cli.tables import compare_table
    from imperfed.experiments.comparison import compare as compare_methods
    from imperfed.experiments.parallel import ParallelRuns

    config, show = configs(words), progress(json)
    with stdout_for(json), show.interruptible(), ParallelRuns(jobs) as processes:
        folder, lines = compare_methods(names, seeds, config, out, show.watch, paper, processes, alone)
    compare_table(show.console, lines, seeds, folder)
    if json:
        typer.echo((folder / "results.json").read_text(encoding="utf-8"))
