"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imperfed.cli import completion

Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="A dataset's name (see `list datasets`), a folder with a federation.toml, or a .npz or .mat file.",
        autocompletion=completion.datasets,
    ),
]
Rounds = Annotated[int | None, typer.Option("--rounds", help="Number of rounds.")]
Budget = Annotated[float | None, typer.Option("--budget", help="auto: minutes that the search may take; default 5.")]
Alone = Annotated[
    bool, typer.Option("--alone/--no-alone", help="Measure models that sites fit alone (scikit-learn) beside them.")
]
Model = Annotated[
    str | None,
    typer.Option("--model", help="A model's name, or your own as module:function.", autocompletion=completion.models),
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, or several GPUs such as cuda:0,1.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Worker processes; 0: one per core, 1: none.")]
Set = Annotated[
    list[str],
    typer.Option("--set", "-s", help="Any setting as key=value; may be repeated.", autocompletion=completion.settings),
]
Features = Annotated[
    str | None,
    typer.Option("--features", help="audit: auto, raw, hog, efficientnet-lite0, or your own as module:function."),
]
Track = Annotated[
    str | None,
    typer.Option("--track", help="Also write the metrics for tensorboard or mlflow, in the run's folder."),
]
Out = Annotated[Path, typer.Option("--out", help="Folder in which the run's folder is created.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of initial weights, batches and sampling.")]
Seeds = Annotated[str, typer.Option("--seeds", help="Comma-separated numbers; each also seeds the split.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes side by side; 0: one per rank, 3 on a large GPU, else 1.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonOnly = Annotated[bool, typer.Option("--json", help="Print the results as JSON; all else goes to stderr.")]
Method = Annotated[
    str | None,
    typer.Argument(help="A method's name, or an experiment file (.toml).", autocompletion=completion.methods),
]

SETTINGS = (
    "Settings: `imperfed show NAME` lists those of a method and of every run, `imperfed schema NAME` describes them as "
    "JSON; see also docs/command-line.md."
)
