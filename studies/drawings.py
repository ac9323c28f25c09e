"""The drawings of studies on the pages of results: `docs/figures`, from the results that come with imperfed.

A file says what it was drawn from as a digest, so that one whose results or names have changed is drawn again; the
bytes themselves differ from one version of matplotlib to the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from imperfed.experiments.reproduction.drawing import draw, drawn
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.reproduction.study_cells import every, kept
from imperfed.experiments.study import Study, studies

FOLDER = Path("docs/figures")


def file_of(study: Study) -> Path:
    """Return where a study's drawing lies."""
    return FOLDER / f"{study.name.replace('/', '-')}.svg"


def source_of(study: Study) -> str:
    """Return a short name for all that a study's drawing shows; empty if it has none."""
    cells, columns = kept(study), drawn(study, kept(study), study.runnable)
    if not columns:
        return ""
    first = study.measures[0]
    shown = [
        [row.name, column.name, cell.seed, cell.figures.get(first), [*map(list, cell.curve)]]
        for row, column in every(study, columns)
        for cell in cells.of(study, row, column)
    ]
    said = [study.draw, study.axis, measure(first).title, [row.name for row in study.rows], shown]
    return f"results {hashlib.sha256(json.dumps(said).encode()).hexdigest()[:10]}"


def on_a_page(study: Study) -> str:
    """Return the drawing as a page shows it, empty if there is none."""
    return f"![{study.title}]({FOLDER.name}/{file_of(study).name})" if source_of(study) else ""


def stale() -> Iterator[Study]:
    """Yield the studies whose drawing is missing, or was drawn from other results."""
    for study in studies().values():
        path, source = file_of(study), source_of(study)
        if source and not (path.exists() and f">{source}<" in path.read_text(encoding="utf-8")):
            yield study


def draw_again(study: Study) -> None:
    """Draw a study from the results that come with imperfed."""
    FOLDER.mkdir(exist_ok=True)
    draw(study, kept(study), study.runnable, None, file_of(study), source_of(study))
