"""How far every table and figure of the papers is, derived from the results that come with imperfed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import or_
from typing import Any

from imperfed.experiments.reproduction.study_cells import every, kept
from imperfed.experiments.study import Study, StudyColumn, studies


@dataclass(frozen=True)
class Standing:
    """How far one table or figure is."""

    name: str
    title: str
    status: str
    """done, substitute, partly, not run, or no data."""
    runs: int
    """How many runs it takes."""
    done: int
    """How many of them there are."""
    about: tuple[str, ...]
    """What stands for what, what there are no data for, and what needs a GPU or hours."""
    command: str
    needs: str = ""
    """What runs that are missing need that this machine may not have."""

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def standings() -> Iterator[Standing]:
    """Yield every table and figure of the papers."""
    yield from map(standing, studies().values())


def standing(study: Study) -> Standing:
    """Return how far a table or figure is: a row is there if it has as many seeds as the study asks for."""
    cells, places = kept(study), list(every(study, study.runnable))
    counts = [min(len(cells.of(study, *place)), study.seeds) for place in places]
    missing = [column for (_, column), count in zip(places, counts, strict=True) if count < study.seeds]
    wanted, done = study.seeds * len(counts), sum(counts)
    substitute = bool(study.substitute) or (bool(study.runnable) and all(c.substitute for c in study.runnable))
    if not study.runnable:
        status = "no data"
    elif done == wanted and not study.lacks:
        status = "substitute" if substitute else "done"
    else:
        status = "partly" if done else "not run"
    command = (study.program or f"imperfed reproduce {study.name}") if wanted else ""
    return Standing(
        study.name, study.title, status, wanted, done, tuple(_about(study, missing)), command, _needs(study, missing)
    )


def _needs(study: Study, missing: Sequence[StudyColumn]) -> str:
    """Return what all runs that are missing need; empty if some of them take minutes."""
    on_gpu = [bool(study.gpu or column.gpu) for column in missing]
    slow = [bool(study.hours or column.hours) for column in missing]
    if not missing or not all(map(or_, on_gpu, slow)):
        return ""
    return "a GPU" if all(on_gpu) else "hours on a CPU, and some a GPU" if any(on_gpu) else "hours on a CPU"


def _slow(one: Study | StudyColumn) -> Iterator[str]:
    """Yield what missing runs would take."""
    if one.gpu:
        yield f"needs a GPU, and was not run yet: {one.gpu}"
    if one.hours:
        yield f"takes hours on a CPU, and was not run yet: {one.hours}"


def _about(study: Study, missing: Sequence[StudyColumn]) -> Iterator[str]:
    """Yield what stands for what, what there are no data for, and what columns with missing runs would take."""
    if study.no_data:
        yield f"no data: {study.no_data}"
        return
    if study.substitute:
        yield f"substitute: {study.substitute}"
    if study.lacks:
        yield f"rows of the paper that are not here: {study.lacks}"
    if missing:
        yield from _slow(study)
    reasons: dict[str, list[str]] = {}
    for column in study.columns:
        for why in _about_column(column, column in missing):
            reasons.setdefault(why, []).append(column.name)
    yield from (f"{', '.join(names)}: {why}" for why, names in reasons.items())


def _about_column(column: StudyColumn, missing: bool) -> Iterator[str]:
    """Yield what is to be said of one column."""
    if column.no_data:
        yield f"no data: {column.no_data}"
    elif column.substitute:
        yield f"substitute: {column.substitute}"
    if missing:
        yield from _slow(column)
