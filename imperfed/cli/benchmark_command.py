"""The command that compares all methods for a kind of labels: benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Device, JsonOnly, Rounds, Seeds, Set
from imperfed.cli.screen import progress, stdout_for
from imperfed.cli.typed_words import configs, seed_numbers, words_of
from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from imperfed.benchmark.benchmark_run import Benchmark
    from imperfed.benchmark.benchmark_tables import BenchmarkTable
    from imperfed.benchmark.kinds import BenchmarkSet

HELP = (
    "A method of your own takes part by its name or import path: --methods my_method:MyMethod. "
    "Datasets are looked for in IMPERFED_DATA; see docs/benchmark.md."
)
Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="candidates, positives, missing, noisy or fairness.",
        autocompletion=completion.benchmarks,
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Methods with their settings, comma-separated; empty: all of the kind.",
        autocompletion=completion.several_methods,
    ),
]
Budget = Annotated[int, typer.Option("--budget", min=1, help="Trials of every method before its runs.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Trainings side by side; 0: one per core or rank, 3 on a large GPU.")]


def benchmark(
    kind: Kind,
    methods: Methods = "",
    datasets: Annotated[str, typer.Option("--datasets", help="Comma-separated; empty: all that can be run here.")] = "",
    budget: Budget = 9,
    seeds: Seeds = "0,1,2",
    rounds: Rounds = None,
    device: Device = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    jobs: Jobs = 0,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Leave out the results that come with imperfed.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for results; a second call goes on there.")] = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Compare all methods for a kind of labels on all datasets, each tuned alike on rows held out.

    Every method gets the same number of trials; test rows are looked at once, with the settings chosen. The same
    command goes on where it was.
    """
    from imperfed.benchmark.benchmark_run import Benchmark
    from imperfed.benchmark.benchmark_tables import tables
    from imperfed.benchmark.kinds import kind_of, results_file
    from imperfed.benchmark.records import BenchmarkRecords
    from imperfed.experiments.tuning import Tuning

    wanted, folder, show = kind_of(kind), out / "benchmark" / kind, progress(json)
    chosen, left_out = wanted.chosen(_names(datasets))
    for name, why in left_out.items():
        show.console.print(f"left out: {name}: {why}")
    if not chosen:
        raise UsageError(f"{kind}: none of its datasets can be run here; with their files they can, see above")
    shipped = [] if from_scratch else [results_file(kind)]
    made = Benchmark(
        wanted,
        chosen,
        _names(methods),
        seed_numbers(seeds),
        words_of(settings, rounds=rounds, device=device),
        configs,
        Tuning(budget),
        folder,
        lambda dataset: _data(dataset, folder),
        BenchmarkRecords.read(*shipped, folder / "results.jsonl"),
        show.console.print,
    )
    with stdout_for(json), show.interruptible():
        made.carry_out(jobs, show.watch)
    found = tables(wanted, made.runs())
    text = "\n\n".join(table.markdown() for table in found) + "\n"
    write_whole(folder / "tables.md", lambda path: path.write_text(text, encoding="utf-8"))
    if json:
        typer.echo(_as_json(made, found, left_out))
        return
    _print(show.console, found, folder)


def _names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _data(dataset: BenchmarkSet, folder: Path) -> str:
    """Return the name of a dataset, or the folder of an example, which is written if it is not there."""
    from imperfed.benchmark.kinds import EXAMPLE
    from imperfed.examples import example

    if not dataset.data.startswith(EXAMPLE):
        return dataset.data
    path = folder / "data" / dataset.name
    return str(path if path.exists() else example(dataset.data.removeprefix(EXAMPLE), path))


def _as_json(made: Benchmark, found: list[BenchmarkTable], left_out: dict[str, str]) -> str:
    runs = [json.loads(run.line()) for of_dataset in made.runs().values() for own in of_dataset.values() for run in own]
    shown = [{"title": table.title, "columns": table.columns, "notes": table.notes} for table in found]
    return json.dumps({"kind": made.kind.name, "left_out": left_out, "tables": shown, "runs": runs}, indent=2)


def _print(console: Console, found: list[BenchmarkTable], folder: Path) -> None:
    """Print the tables, and where everything is."""
    from imperfed.cli.terminal_table import TableColumn, print_path, print_table, print_wrapped

    for table in found:
        columns = {
            title: [cell.replace("`", "").replace("**", "") for cell in cells] for title, cells in table.columns.items()
        }
        print_table(
            console,
            [TableColumn(title, cells, title in ("method", "chosen")) for title, cells in columns.items()],
            table.title,
        )
        for note in table.notes:
            print_wrapped(console, note)
    console.print("Written:")
    for name in ("tables.md", "results.jsonl"):
        print_path(console, folder / name)
