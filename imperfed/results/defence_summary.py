"""The part of a run's summary about sites that a defence excludes."""

from __future__ import annotations

from imperfed.results.part import Part


class LeftOut(Part, frozen=True):
    """A site that a defence excludes at the end of a run."""

    site: str
    since: int
    """The first round of the unbroken exclusion."""
    score: float | None
    """The score that speaks against it in its last round; None if undefined."""
    confidence: float
    """The server's confidence in it in its last round."""
    by: str = ""
    """Which of several defences exclude it; empty where the run has one."""


class DefenceSummary(Part, frozen=True):
    """The sites excluded by a defence that judges single sites."""

    out: tuple[LeftOut, ...]
    """Excluded at the end, in order of the rounds."""
    ever_out: tuple[str, ...]
    false_alarms: tuple[str, ...] | None = None
    """Honest sites excluded at the end; None if the adversaries are unknown."""
    missed: tuple[str, ...] | None = None
    """Adversaries not excluded at the end."""
