"""The command line. Imports nothing heavy at the top, so that `--help` responds at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from imperfed import __version__
from imperfed.cli import completion, new_project
from imperfed.cli import site_commands as cli_sites
from imperfed.cli.options import (
    SETTINGS,
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
    Workers,
)
from imperfed.core.errors import ImperfedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from imperfed.cli.progress import Show
    from imperfed.experiments.config import Config

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
DEMO = ("pfedpll", "fedavg+lcp", "local-only+lcp", "pooled+lcp")


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


@app.command(epilog=SETTINGS)
def run(
    what: Method = None,
    data: Data = "",
    rounds: Rounds = None,
    model: Model = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    budget: Budget = None,
    out: Out = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Train a method; without its name, search for the best model that can be had (`auto`).

    Without --data either: a demo with candidate sets on handwritten digits, beside three references.
    """
    words = _words(settings, rounds, model, device, workers) | _given(data=data or None)
    if what is None and not data:
        _compare(DEMO, [seed or 0], words, out, json=json)
        return
    from imperfed.cli.tables import run_table
    from imperfed.experiments.auto.run import start_any

    file, words = _sources(what or "auto", words | _given(seed=seed, budget=budget))
    show = _show(json)
    with _stdout_for(json), show.interruptible():
        folder, summary = start_any(file, words, out, show.watch())
    run_table(show.console, summary, folder.path)
    if json:
        typer.echo(summary.to_json())


@app.command(epilog=SETTINGS)
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
    jobs: Jobs = 0,
    alone: Annotated[
        bool, typer.Option("--alone/--no-alone", help="Measure models that sites fit alone (scikit-learn) beside them.")
    ] = True,
    out: Out = Path("runs"),
    json: JsonOnly = False,
) -> None:
    """Train several methods on the same splits and print one table."""
    numbers = _numbers(seeds)
    words = _words(settings, rounds, model, device, workers) | _given(data=data or None)
    if methods.endswith(".toml"):
        from imperfed.experiments.study import read_study

        study = read_study(methods)
        _compare(study.methods, numbers, study.settings | words, out, study.paper, jobs, json, alone)
        return
    names = [name.strip() for name in methods.split(",") if name.strip()]
    _compare(names, numbers, words, out, jobs=jobs, json=json, alone=alone)


@app.command(epilog=SETTINGS)
def reproduce(
    study: Annotated[
        str,
        typer.Argument(
            help="A paper's table, such as pfedpll/table-4.2 (see `list studies`).", autocompletion=completion.studies
        ),
    ],
    only: Annotated[str, typer.Option("--only", help="Datasets of the table, comma-separated; empty: all.")] = "",
    seeds: Seeds = "0,1,2",
    rounds: Rounds = None,
    device: Device = None,
    workers: Workers = None,
    settings: Set = [],  # noqa: B006
    jobs: Jobs = 0,
    out: Out = Path("runs"),
) -> None:
    """Reproduce a paper's table: the paper's figures, ours, and the difference."""
    from imperfed.experiments.reproduce import chosen, markdown
    from imperfed.experiments.reproduce import reproduce as make

    wanted, datasets = chosen(study, [data.strip() for data in only.split(",") if data.strip()])
    words, numbers, show = _words(settings, rounds, None, device, workers), _numbers(seeds), _show()
    with show.interruptible():
        folder, parts = make(wanted, datasets, numbers, lambda own: _configs(own | words), out, show.watch, jobs)
    show.console.print(markdown(wanted, parts, numbers))
    show.console.print(f"written\n  {folder / 'table.md'}\n  {folder / 'results.json'}")


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Continue a run that was interrupted or killed; the models are the same as those of an uninterrupted run."""
    from imperfed.cli.tables import run_table
    from imperfed.experiments.auto.run import resume as continue_run
    from imperfed.results.folder import RunFolder

    opened, show = RunFolder.open(folder), _show()
    summary = opened.summary()
    if summary is None and (folder / "serve.json").exists():
        cli_sites.serve_on(opened)
        return
    if summary is not None:
        show.console.print(f"{folder}: this run has already ended")
    else:
        with show.interruptible():
            summary = continue_run(opened, show.watch())
    run_table(show.console, summary, folder)


@app.command()
def evaluate(folder: Annotated[Path, typer.Argument(help="A run's folder.")], json: Json = False) -> None:
    """Compute the figures of a run's models again from its files."""
    from imperfed.cli.tables import figures_table
    from imperfed.experiments import experiment
    from imperfed.results.folder import RunFolder

    figures_table(_console(), experiment.evaluate(RunFolder.open(folder)), json)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that has ended.")],
    file: Annotated[Path, typer.Argument(help="New rows, in the format of the run's own files, without labels.")],
    site: Annotated[str, typer.Option("--site", help="The site whose model to use, where sites have their own.")] = "",
    out: Annotated[Path, typer.Option("--out", help="The table to write: .csv or .parquet.")] = Path("predictions.csv"),
) -> None:
    """Predict new rows with a run's models: the probability of every class, and the most probable one."""
    from imperfed.api import runs as api
    from imperfed.results.predict import predict_file

    rows = predict_file(api.load(folder), file, site, out)
    typer.echo(f"{rows} rows predicted; written\n  {out}")


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Write a run's report.html again from its files."""
    from imperfed.report import write_report
    from imperfed.results.folder import RunFolder

    typer.echo(write_report(RunFolder.open(folder)))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A folder of files, one file, or a federation.toml.")],
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Picture file; default: census.png beside federation.toml.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what your files hold, site by site, and which methods can learn from it; guess a missing federation.toml."""
    from imperfed.census.inspect import document, inspect
    from imperfed.census.picture import draw

    inspection = inspect(path)
    place, failed = picture or inspection.declaration.folder / "census.png", None
    try:
        draw(inspection.census, place)
    except OSError as error:
        failed = error
    drawn = None if failed else place
    if json:
        from json import dumps

        typer.echo(dumps(document(inspection) | {"picture": drawn and str(drawn)}, indent=2, ensure_ascii=False))
    else:
        from imperfed.census.console import print_inspection

        print_inspection(inspection, _console(), drawn)
    if failed and picture:
        raise failed
    if failed:
        typer.echo(f"warning: picture not drawn ({failed.strerror}: {place}); use --picture FILE", err=True)


@app.command(name="list")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="algorithms, repairs, attacks, defences, labels, partitions, candidates, noise, annotations, "
            "datasets, models or studies.",
            autocompletion=completion.lists,
        ),
    ] = "algorithms",
    json: Json = False,
) -> None:
    """List the entries of the catalogue."""
    from imperfed.cli.listing import listing

    listing(what, json, _console())


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from any of the lists.", autocompletion=completion.any_name)],
    json: Json = False,
) -> None:
    """Show one entry of the catalogue: symbols, settings, source file."""
    from imperfed.cli.catalogue import show as show_entry

    show_entry(name, json, _console())


@app.command(epilog=SETTINGS)
def schema(
    what: Method = None,
    settings: Set = [],  # noqa: B006
) -> None:
    """Print a JSON schema of experiment files, for editors; with a name, including the settings of that method."""
    from json import dumps

    from imperfed.experiments.config import resolve
    from imperfed.experiments.schema import file_schema

    words = _settings(settings)
    config = resolve(words=words) if what is None else _config(what, words)
    typer.echo(dumps(file_schema(config, any_parts=what is None), indent=2, ensure_ascii=False))


app.command()(cli_sites.keys)
app.command(epilog=SETTINGS)(cli_sites.serve)
app.command()(cli_sites.join)
app.add_typer(new_project.app, name="new")


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    # No markup and no emoji codes: paths and class names are printed unchanged.
    return Console(stderr=stderr, soft_wrap=True, markup=False, emoji=False, highlight=False)


def _show(json: bool = False) -> Show:
    """Return what shows progress: on stderr where stdout is for JSON."""
    from imperfed.cli.progress import Show

    return Show(_console(stderr=json))


def _stdout_for(json: bool) -> AbstractContextManager[None]:
    """Keep stdout for JSON, or leave it as it is."""
    from imperfed.cli.progress import stdout_to_stderr

    return stdout_to_stderr() if json else nullcontext()


def _given(**values: object) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def _words(
    settings: list[str], rounds: int | None, model: str | None, device: str | None, workers: int | None
) -> dict[str, str]:
    """Return the settings given on the command line, by key."""
    if device == "cpu":  # once torch has seen a GPU, a CPU run cannot fork workers (`engine/backends/task_pool.py`)
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return _settings(settings) | _given(rounds=rounds, model=model, device=device, workers=workers)


def _settings(assignments: Sequence[str]) -> dict[str, str]:
    """Return settings from `key=value` assignments."""
    words = {}
    for setting in assignments:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"a setting is written as key=value; got {setting!r}")
        words[key.strip()] = value.strip()
    return words


def _config(what: str, words: dict[str, str]) -> Config:
    from imperfed.experiments.config import resolve

    return resolve(*_sources(what, words))


def _sources(what: str, words: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the sections of an experiment file, if `what` is one, and the words, which name the method otherwise."""
    from imperfed.experiments.config import read

    path = Path(what)
    return (read(path), words) if path.suffix == ".toml" else ({}, {"method": what} | words)


def _numbers(seeds: str) -> list[int]:
    try:
        numbers = [int(s) for s in seeds.split(",")]
    except ValueError:
        raise UsageError(f"--seeds takes comma-separated whole numbers; got {seeds!r}") from None
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds names a seed twice, which would count one run twice; got {seeds!r}")
    return numbers


def _configs(words: dict[str, Any]) -> Callable[[str, int], Config]:
    """Return a function from a method and a seed to the settings of that run of a comparison."""
    from imperfed.experiments.config import resolve

    for key in words:
        if key.removeprefix("run.") in ("method", "seed"):
            raise UsageError(f"{key} varies between the runs of a comparison and cannot be set for all of them")

    def config(method: str, seed: int) -> Config:
        name, *own = method.split()
        return resolve(words={"data_seed": seed} | words | _settings(own) | {"method": name, "seed": seed})

    return config


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
    from imperfed.experiments.experiment import load_data
    from imperfed.experiments.parallel import ParallelRuns

    config, show = _configs(words), _show(json)
    with _stdout_for(json), show.interruptible(), ParallelRuns(jobs) as processes:
        load = load_data if alone else None
        folder, lines = compare_methods(names, seeds, config, out, show.watch, paper, processes, load)
    compare_table(show.console, lines, seeds, folder)
    if json:
        typer.echo((folder / "results.json").read_text(encoding="utf-8"))


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
