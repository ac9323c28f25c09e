"""`split.parquet`: which rows a run trains on, by site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from imperfed.core.errors import DataError
from imperfed.data.row_names import RowNames

SPLIT = "split.parquet"


def split_columns(
    split: Mapping[str, Sequence[str]], index: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the table of the ids of the training rows by site; `index`: as in `RunFolder.save_split`."""
    import pyarrow

    text = pyarrow.string()
    ids = [own.array if isinstance(own, RowNames) else pyarrow.array(own, text) for own in split.values()]
    sites = [pyarrow.repeat(pyarrow.scalar(site), len(own)) for site, own in split.items()]
    columns: dict[str, Any] = {"id": pyarrow.chunked_array(ids, text), "site": pyarrow.chunked_array(sites, text)}
    if index is not None:
        columns["index"] = [index[site].get(row) for site, ids in split.items() for row in ids]
    return columns


def read_index(path: Path) -> Any:
    """Return the caller's own names of the training rows, by site, as pyarrow arrays; empty if there are none."""
    from pyarrow import compute, parquet

    if not path.exists() or "index" not in parquet.read_schema(path).names:
        return {}
    table = parquet.read_table(path)
    sites = table["site"].unique().to_pylist()
    return {site: table.filter(compute.equal(table["site"], site))["index"] for site in sites}


def read_split(path: Path) -> dict[str, list[str]]:
    """Return the ids of the training rows by site; empty if there is no such table yet."""
    import pyarrow
    from pyarrow import parquet

    if not path.exists():
        return {}
    try:
        table = parquet.read_table(path, columns=["id", "site"])
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cut short or damaged ({error}); delete it to continue without it") from error
    split: dict[str, list[str]] = {}
    for name, site in zip(table["id"].to_pylist(), table["site"].to_pylist(), strict=True):
        split.setdefault(site, []).append(name)
    return split
