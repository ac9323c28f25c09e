"""Predictions for new rows, which are read in the same way as those of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import KINDS
from imperfed.data import from_arrays, readers
from imperfed.data.dataset import check_finite
from imperfed.data.files.declaration import FILE, read_declaration
from imperfed.data.files.problems import Problems
from imperfed.data.files.rows import NEW, read_rows
from imperfed.data.sources import OWN_FILES, sources
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import FOLDER
from imperfed.results.summary import Summary

if TYPE_CHECKING:
    from imperfed.api.result import RunResult


def as_inputs(array: from_arrays.Array, data: str, where: str) -> Tensor:
    """Return an array of new rows as the run read its own: byte images scaled to 0 .. 1, others as is."""
    if data in sources() and array.dtype == "uint8" and array.ndim > 2:
        raise DataError(
            f"{where}: found uint8 images, but {data} scales its images in its own way; give them as "
            f"imperfed.data.sources.load({data!r}).x holds them"
        )
    return from_arrays.inputs(array, where)


def check_inputs(x: Tensor, summary: Summary, where: str) -> None:
    """Refuse inputs whose shape differs from the run's."""
    shape = list(summary.input)
    fixed = shape[:1] if summary.features else shape  # sparse rows may have any number of slots
    if x.ndim != 1 + len(shape) or list(x.shape[1 : 1 + len(fixed)]) != fixed:
        raise DataError(f"{where}: expected rows of shape {shape}, [n, ...]; got {list(x.shape)}")


def read_new(file: Path, folder: RunFolder) -> tuple[Tensor, list[str]]:
    """Return inputs and ids of the rows of a file, read by the declaration of the run or from the array `x`."""
    data = folder.config().run.data
    if data in sources() or Path(data).suffix.lower() in OWN_FILES:
        x = as_inputs(readers.read_arrays(file, "x")["x"], data, f"{file}, x")
        check_finite(x, str(file))
        return x, list(map(str, range(len(x))))
    stored, problems = folder.path / FILE, Problems()
    declaration = read_declaration(stored if stored.exists() else data)
    if file.is_dir() and declaration.inputs.image:  # images as such, without the table that names them
        declaration = replace(declaration, id="", inputs=replace(declaration.inputs, image=""))
    rows = read_rows(file, declaration, NEW, problems)
    problems.check(str(file))
    assert rows is not None
    return rows.x, list(rows.ids())


def predict_file(result: RunResult, file: Path, site: str, out: Path) -> int:
    """Write the predictions of a site's model, or of the global one, for the rows of a file; return their number."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise UsageError(f"{out}: predictions are written to a file ending in .csv or .parquet")
    if out.exists():
        raise UsageError(f"{out} already exists; choose another file with --out")
    site = whose(result, site, "--site")
    x, ids = read_new(file, RunFolder(result.folder))
    check_inputs(x, result.summary, str(file))
    table = predictions(result.summary, ids, result.probabilities(x, site))
    write_whole(out, lambda partly: _write(partly, out.suffix.lower(), table))
    return len(ids)


def whose(result: RunResult, site: str, option: str) -> str:
    """Return the site whose model predicts: the one asked for by this option, or any site if all share one model."""
    sites = result.sites
    own = [name for name in sites if own_model(result, name)]
    if not site and len(own) > 1:
        raise UsageError(f"each site has its own model; choose one with {option}: {', '.join(own)}")
    return site or [*own, *sites][0]


def own_model(result: RunResult, site: str) -> bool:
    """Return whether a site predicts with a model of its own."""
    folders = [result.folder / "models", result.folder / FOLDER]
    return any((folder / f"{site}.safetensors").exists() for folder in folders)


def predictions(summary: Summary, ids: list[str], probability: Tensor) -> Any:
    """Return the columns `id`, one per class, and `predicted`; classes may have the same names as other columns."""
    import pyarrow

    classes = summary.classes
    predicted = KINDS[summary.facts.labels].predicted(probability, classes)
    columns = [pyarrow.array(ids), *(pyarrow.array(p.numpy()) for p in probability.T), pyarrow.array(predicted)]
    return pyarrow.table(columns, ["id", *classes, "predicted"])


def _write(path: Path, suffix: str, table: Any) -> None:
    from pyarrow import csv, parquet

    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        csv.write_csv(table, path)
