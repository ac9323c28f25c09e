"""The section about the privacy of a run: what its updates cost, and what epsilon does not cover."""

from __future__ import annotations

from collections.abc import Iterable

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section, from_to
from imperfed.results.metrics import EPSILON


def privacy(run: RunFiles) -> Section | None:
    """Draw epsilon by round, and say what it is about; None if the run is not private."""
    said, course = run.summary.privacy if run.summary else None, run.history.get(EPSILON, {})
    if not course:
        return Section("Privacy", _joined(said.sentences())) if said else None
    spent = {r: [value for value, _ in sites.values()] for r, sites in course.items()}
    svg = plots.curves("epsilon", f"epsilon by round: {from_to(spent)}", spent, "epsilon", "the only site")
    picture = Picture(svg, f"Epsilon of the sites' updates up to each round, at delta {delta_of(run):g}.")
    if said is None:
        return Section("Privacy", "", [picture])
    spent_on, _, *more = said.sentences()
    points = [f"{point[0].upper()}{point[1:]}" for point in said.not_covered]
    return Section("Privacy", _joined((spent_on, *more)), [picture], "Not covered by epsilon", points)


def _joined(sentences: Iterable[str]) -> str:
    return " ".join(f"{capitalised(sentence)}." for sentence in sentences)


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital, unless it begins with a setting."""
    return sentence if "=" in sentence.split()[0] else f"{sentence[0].upper()}{sentence[1:]}"


def delta_of(run: RunFiles) -> float:
    """Return the delta for which epsilon is counted."""
    assert run.config.privacy is not None
    return run.config.privacy.delta
