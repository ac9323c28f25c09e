"""The reproduction of a paper's table: our figures for every dataset and method beside the paper's, and the time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError, unknown
from imperfed.experiments.comparison import Line, caption, compare, spread
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Watch
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.study import Study, read_study, studies
from imperfed.results.folder import free


@dataclass(frozen=True)
class TablePart:
    """The part of a table that is about one dataset."""

    data: str
    lines: list[Line]
    seconds: float
    folder: Path


def chosen(name: str, only: Sequence[str]) -> tuple[Study, tuple[str, ...]]:
    """Return a study by its name, and the selected datasets of it."""
    known = studies()
    if name not in known:
        raise unknown("study", name, list(known))
    study = read_study(str(known[name]))
    for data in only:
        if data not in study.datasets:
            raise unknown(f"dataset of {name}", data, study.datasets)
    return study, tuple(data for data in study.datasets if not only or data in only)


def reproduce(
    study: Study,
    datasets: Sequence[str],
    seeds: Sequence[int],
    config: Callable[[dict[str, Any]], Callable[[str, int], Config]],
    out: Path,
    watch: Callable[[], Watch],
    jobs: int,
) -> tuple[Path, list[TablePart]]:
    """Make the table one dataset after the other; write what there is after each."""
    if not seeds:
        raise UsageError("no seed was named")
    folder = free(out, "reproduce", study.title.replace(" ", "-").replace(",", ""))
    parts: list[TablePart] = []
    with ParallelRuns(jobs) as processes:
        for data in datasets:
            part, began = study.on(data), time.perf_counter()
            runs, lines = compare(part.methods, seeds, config(part.settings), folder, watch, part.paper, processes)
            parts.append(TablePart(data, lines, time.perf_counter() - began, runs))
            write(folder, study, parts, seeds)
    return folder, parts


def markdown(study: Study, parts: Sequence[TablePart], seeds: Sequence[int]) -> str:
    """Return the table in Markdown: our figure, the paper's and the difference, for each dataset."""
    head = ["method"] + [title for part in parts for title in (f"{part.data}, %", "paper, %", "difference")]
    rows = [head, ["---"] * len(head)]
    for m, method in enumerate(study.methods):
        cells = [method]
        for part in parts:
            line = part.lines[m]
            known = line.paper is not None and line.values
            cells += [
                spread(line.values) or "diverged",
                "" if line.paper is None else f"{line.paper:.2f}",
                f"{100 * line.mean - line.paper:+.2f}" if known and line.paper is not None else "",
            ]
        rows.append(cells)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    took = ", ".join(f"{part.data} {part.seconds:.0f} s" for part in parts)
    total = sum(part.seconds for part in parts)
    return f"{study.title}. {caption(seeds)}\n\n{table}\n\nTime: {took}; {total:.0f} s in all.\n"


def write(folder: Path, study: Study, parts: Sequence[TablePart], seeds: Sequence[int]) -> None:
    """Write `table.md` and `results.json`."""
    results = {
        part.data: {
            "seconds": round(part.seconds, 1),
            "runs": part.folder.name,
            "lines": [
                {"method": x.method, "values": x.values, "paper": x.paper, "seconds": x.seconds} for x in part.lines
            ],
        }
        for part in parts
    }
    text = json.dumps({"study": study.title, "seeds": list(seeds), "datasets": results}, indent=2)
    write_whole(folder / "results.json", lambda path: path.write_text(text))
    write_whole(folder / "table.md", lambda path: path.write_text(markdown(study, parts, seeds), encoding="utf-8"))
