"""Runs from Python, with the settings, folders and figures of the command line, on files or on data in memory.

result = imperfed.run("pfedpll", data=frame, label="candidates", site="clinic", rounds=5)
result.summary.personal.mean
result.labels().to_pandas()
result.predict(new_rows, site="north")
imperfed.load("runs/...")  # the result of a run that has ended
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from imperfed.api.arguments import as_path
from imperfed.api.call_rows import again, guessed, loaded, prepared
from imperfed.api.column_names import Columns, OneColumn
from imperfed.api.declared import PARTS
from imperfed.api.parts import objects_again, split_objects
from imperfed.api.result import RunResult
from imperfed.api.watching import OnRound, watching
from imperfed.core.algorithm import Algorithm
from imperfed.core.objective import Objective
from imperfed.experiments.auto import run as runs
from imperfed.models import ModelSpec, build
from imperfed.results.folder import RunFolder

if TYPE_CHECKING:
    from imperfed.census.inspect import Inspection

Model = str | nn.Module | Callable[..., nn.Module]


def run(
    method: str | Algorithm | Objective | type[Algorithm] | type[Objective] = "auto",
    data: Any = "digits",
    out: str | Path = "runs",
    *,
    label: Columns | None = None,
    site: OneColumn | None = None,
    model: Model | None = None,
    objective: str | Objective | type[Objective] | None = None,
    progress: bool | None = None,
    on_round: OnRound | None = None,
    **keywords: Any,
) -> RunResult:
    """Train one method in a new folder below `out`, and return its result; `auto` searches for the best one.

    `method` and `objective`: a name, `package.module:Class`, an instance or a class; likewise the keywords `repair`,
    `attack`, `defence`, `partition`, `candidates`, `noise` and `annotates`. `model`: a name, `package.module:function`,
    an `nn.Module`, whose present weights are the initial ones and which is not changed, or a function that makes one
    and is called with those of `shape` and `classes` that it accepts.

    `data`: the name of a dataset, a path, a table with a `site` column, {site: table}, {site: (x, labels)},
    {site: torch Dataset} or a `Federation`. Tables are described by `label` (a column, or one per class), by `site` (a
    column) and, like arrays, by the other keys of federation.toml: `kind`, `classes`, `inputs`, `id`, `group`, `truth`,
    `separator`, `missing`, `uncertain`, `attribute`, `name`; further rows are `test`, `public` and `trusted`. What is
    left out is guessed.

    `progress`: whether to print it; by default in terminals and notebooks. `on_round` is called with the report of
    every round, and ends the run by returning True. All other keywords are settings, such as `rounds=20` or
    `lr=0.05`; `imperfed show METHOD` on the command line lists them.
    """
    described = {"label": label, "site": site, **keywords}
    objects, words = split_objects({"method": method, "model": model, "objective": objective, **described})
    rows, name, settings = prepared(data, words)
    with watching(progress, on_round, guessed(rows)) as watch:
        folder, summary = runs.start_any(
            None, {"data": name, **settings}, as_path(out, "out"), watch, lambda config: loaded(rows, config), objects
        )
    return RunResult(folder.path, summary, objects)


def resume(
    folder: str | Path,
    data: Any = None,
    *,
    progress: bool | None = None,
    on_round: OnRound | None = None,
    track: str = "",
    **further: Any,
) -> RunResult:
    """Continue a run that was interrupted. Rows and objects that were handed over are handed over again.

    `track`: "tensorboard", "mlflow" or "none", if not as in the beginning. `further`: `test`, `public` and `trusted`,
    if the run began with them, and what `load` takes. The columns are read as in the beginning.
    """
    opened = RunFolder.open(as_path(folder, "folder"))
    rows = {key: further.pop(key) for key in PARTS if key in further}
    objects = objects_again(opened, further)
    config = opened.config(objects)
    federated = None if data is None else again(opened, data, rows, config)
    with watching(progress, on_round) as watch:
        return RunResult(opened.path, runs.resume(opened, watch, federated, objects, track), objects)


def load(folder: str | Path, **objects: Any) -> RunResult:
    """Return the result of a run that has ended, from its folder.

    `objects`: whatever was handed over to `run` as an object and cannot be found by name, such as `model=net`, for
    predictions; the weights are those of the run. Figures, labels and history need none of them.
    """
    opened = RunFolder.open(as_path(folder, "folder"))
    summary = opened.ended()
    given = objects_again(opened, objects)
    if given.model is not None:  # refuse now, not at the first prediction, a network that does not fit
        model = given.beginning_with(opened.initial()).model
        build(ModelSpec(handed_over=model), summary.input, len(summary.classes), 0)
    return RunResult(opened.path, summary, given)


def inspect(data: Any, *, label: Columns | None = None, site: OneColumn | None = None, **keywords: Any) -> Inspection:
    """Return what `imperfed inspect` reports about files, for which it writes federation.toml if there is none.

    Data in memory are described as for `run`, and nothing is written.
    """
    from imperfed.api.inspecting import inspection_of

    return inspection_of(data, {"label": label, "site": site, **keywords})
