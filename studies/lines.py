"""Results of studies as lines of JSON in a file: runs that are in the file are not repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Cell = TypeVar("Cell")
Record = dict[str, Any]


def run_cells(todo: Sequence[Cell], carry_out: Callable[[Cell], Record], jobs: int, path: Path) -> None:
    """Carry out the cells in `jobs` processes, and write each result as soon as it is ready."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spawned = get_context("spawn")  # a process that is killed ends the study; it does not wait for it for ever
    with ProcessPoolExecutor(jobs, spawned) as pool, path.open("a", encoding="utf-8") as file:
        for done, cell in enumerate(as_completed([pool.submit(carry_out, cell) for cell in todo]), 1):
            record = cell.result()
            print(json.dumps(record), file=file, flush=True)
            print(f"{done} of {len(todo)}: {json.dumps(record)[:150]}", flush=True)


def read_lines(path: Path) -> list[Record]:
    """Return the results in a file; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def rounded(record: Record, digits: int = 5) -> Record:
    """Return a result whose numbers take little room in a file."""
    return {name: round(value, digits) if isinstance(value, float) else value for name, value in record.items()}


def numbers(text: str) -> list[int]:
    """Return the numbers of a comma-separated list with ranges, such as 0,3,10-14."""
    ends: Iterable[list[str]] = (part.split("-") for part in text.split(","))
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]
