"""The commands for the folder of a run: evaluate, predict, export, report, status, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imperfed.cli.options import Json
from imperfed.cli.screen import console


def evaluate(folder: Annotated[Path, typer.Argument(help="A run's folder.")], json: Json = False) -> None:
    """Compute the figures of a run's models again from its files."""
    from imperfed.cli.tables import figures_table
    from imperfed.experiments.stored_run import evaluate
    from imperfed.results.folder import RunFolder

    opened = RunFolder.open(folder)
    summary = opened.summary()
    one_test = summary is not None and summary.facts.common_test
    figures_table(console(), evaluate(opened), json, one_test)


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that has ended.")],
    file: Annotated[
        Path,
        typer.Argument(help="New rows, in the format of the run's own files, without labels; or a folder of images."),
    ],
    site: Annotated[str, typer.Option("--site", help="The site whose model to use, where sites have their own.")] = "",
    out: Annotated[Path, typer.Option("--out", help="The table to write: .csv or .parquet.")] = Path("predictions.csv"),
) -> None:
    """Predict new rows with a run's models: the probability of every class, and the most probable one."""
    from imperfed.api import runs as api
    from imperfed.results.predict import predict_file

    rows = predict_file(api.load(folder), file, site, out)
    typer.echo(f"{rows} rows predicted; written\n  {out}")


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that has ended.")],
    site: Annotated[
        str, typer.Option("--site", help="The site whose model to write, where sites have their own.")
    ] = "",
    format: Annotated[str, typer.Option("--format", help="onnx, pt2 (torch.export) or safetensors.")] = "onnx",
    out: Annotated[Path, typer.Option("--out", help="The folder to create.")] = Path("exported"),
) -> None:
    """Write a run's model for use elsewhere: scaling and class names inside, with a model card."""
    from imperfed.api import runs as api
    from imperfed.export import export_model

    files = export_model(api.load(folder), out, format, site)
    typer.echo("\n  ".join(["written:", *map(str, files.all)]))


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, of a comparison or of a sweep.")],
) -> None:
    """Write a folder's report.html again from its files."""
    from imperfed.experiments.sweep.sweep_plan import PLAN
    from imperfed.report import write_report
    from imperfed.report.compared_runs import RUNS
    from imperfed.report.comparison_page import write_comparison_page
    from imperfed.report.sweep_page import write_sweep_page
    from imperfed.results.folder import RunFolder

    if (folder / PLAN).exists():
        typer.echo(write_sweep_page(folder))
        return
    if (folder / RUNS).exists():
        typer.echo(write_comparison_page(folder))
        return
    typer.echo(write_report(RunFolder.open(folder)))


def status(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")], json: Json = False) -> None:
    """Say how far a run is: rounds, figures, time left, failures."""
    from json import dumps

    from imperfed.live import RunStatus

    found = RunStatus.of(folder)
    typer.echo(dumps(found.plain(), indent=2) if json else "\n".join(found.sentences()))


def watch(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to listen on; 0: any that is free.")] = 8765,
) -> None:
    """Serve a page about a run under way, which renews itself; it can only be read, from this machine by default."""
    from imperfed.live import LivePage

    page = LivePage(folder, host, port)
    typer.echo(f"{page.address}\nCtrl-C ends the page; the run goes on")
    try:
        page.run()
    except KeyboardInterrupt:
        typer.echo("ended")
