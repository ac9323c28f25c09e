"""The part of a run's summary about a label repair."""

from __future__ import annotations

from imperfed.evaluation.label_figures import RepairFigures
from imperfed.results.part import Part


class Traffic(Part, frozen=True):
    """Bytes between the sites and the server."""

    up: int
    down: int


class MixUp(Part, frozen=True):
    """A class that a site takes for another, as a repair estimates it."""

    true: str
    given: str
    share: float
    """Of the site's rows that are truly of the class, how many have the other label."""
    rows: float
    """The expected number of such rows."""


class RepairedSite(Part, frozen=True, omit_defaults=True):
    """One site of a repair."""

    site: str
    group: int
    noise_estimate: float | None
    """The share of wrong labels that the site estimates for itself."""
    figures: RepairFigures | None
    """None if the truth is unknown."""
    mixed_up: tuple[MixUp, ...] | None = None
    """The classes most often taken for others; None if the repair does not estimate it."""


class RepairSummary(Part, frozen=True):
    """The changes that a repair made to the labels before training."""

    name: str
    n: int
    """The number of labels."""
    changed: int
    figures: RepairFigures | None
    """None if the truth is unknown."""
    groups: int
    """The number of groups of sites, each with its own model."""
    adjusted_rand_index: float | None
    """Of the groups against the sites' tasks; None if sites have no tasks."""
    sent: dict[str, tuple[int, ...]]
    """Name and shape of everything that a site sent."""
    bytes: Traffic
    sites: tuple[RepairedSite, ...]
    support: str = ""
    """Whether the data support the repair, in words; empty where it does not check."""
    left_alone: tuple[str, ...] = ()
    """The sites whose labels stay because they do not."""
