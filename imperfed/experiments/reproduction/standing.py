"""How far every table and figure of the papers is, derived from the results that come with imperfed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from imperfed.experiments.reproduction.study_cells import every, kept
from imperfed.experiments.study import Study, studies


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
    """What stands for what, and what there are no data for."""
    command: str

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def standings() -> Iterator[Standing]:
    """Yield every table and figure of the papers."""
    yield from map(standing, studies().values())


def standing(study: Study) -> Standing:
    """Return how far a table or figure is: a row is there if it has as many seeds as the study asks for."""
    cells = kept(study)
    counts = [min(len(cells.of(study, *place)), study.seeds) for place in every(study, study.runnable)]
    wanted, done = study.seeds * len(counts), sum(counts)
    substitute = bool(study.substitute) or (bool(study.runnable) and all(c.substitute for c in study.runnable))
    if not study.runnable:
        status = "no data"
    elif done == wanted and not study.lacks:
        status = "substitute" if substitute else "done"
    else:
        status = "partly" if done else "not run"
    command = study.program or f"imperfed reproduce {study.name}"
    return Standing(study.name, study.title, status, wanted, done, tuple(_about(study)), command if wanted else "")


def _about(study: Study) -> Iterator[str]:
    """Yield what stands for what, and what there are no data for."""
    if study.no_data:
        yield f"no data: {study.no_data}"
        return
    if study.substitute:
        yield f"substitute: {study.substitute}"
    if study.lacks:
        yield f"no method here: {study.lacks}"
    reasons: dict[str, list[str]] = {}
    for column in study.columns:
        if column.no_data or column.substitute:
            why = f"no data: {column.no_data}" if column.no_data else f"substitute: {column.substitute}"
            reasons.setdefault(why, []).append(column.name)
    yield from (f"{', '.join(names)}: {why}" for why, names in reasons.items())
