"""The findings of an audit as types: everything that `audit.json` holds, under the names of the fields."""

from __future__ import annotations

from typing import ClassVar

from imperfed.evaluation.label_figures import RepairFigures, SuspectFigures
from imperfed.results.part import Part, WholeFile
from imperfed.results.repair_summary import MixUp


class Suspect(Part, frozen=True):
    """A row whose label is probably wrong."""

    id: str
    given: str
    suggested: str
    probability: float
    """Of the suggested label."""
    suspicion: float
    """One minus the probability of the given label."""
    decision: str
    """What a repair would do: change or keep."""


class LabelNoise(Part, frozen=True):
    """One label at a site: how many rows have it, and how many of them probably should not."""

    label: str
    given: int
    wrong: float | None
    """The estimated share of these rows that are of other classes; None if there are none."""
    missed: float | None
    """The estimated share of the rows of this class that have another label; None if there are none."""


class KnownTruth(Part, frozen=True):
    """How well the audit did, where the truth is known."""

    suspects: SuspectFigures
    changes: RepairFigures | None
    """What a repair would do."""


class AuditedSite(Part, frozen=True):
    """The findings about one site."""

    site: str
    rows: int
    noise: float
    """The estimated share of wrong labels."""
    suspects: int
    """Rows for which another label is more probable than the given one."""
    changes: int
    """Labels that a repair would change."""
    unlike: float | None
    """The share of its labels that the site gives otherwise than all sites together would, 0 .. 1; None for sets."""
    labels: tuple[LabelNoise, ...]
    mixed_up: tuple[MixUp, ...]
    worst: tuple[Suspect, ...]
    """The suspects by suspicion, the worst first."""
    truth: KnownTruth | None


class AuditSummary(WholeFile, frozen=True):
    """All findings of an audit."""

    in_ascii: ClassVar[bool] = False

    data: str
    method: str
    features: str
    clean_rows: int
    classes: tuple[str, ...]
    rows: int
    noise: float
    noise_after: float
    """The share of labels that would be wrong after a repair, as estimated."""
    suspects: int
    changes: int
    agreement: float
    """The share of labels that the features predict for rows that the probe did not see."""
    contradicted: float | None
    """The share of labels that the probe contradicts among the surest fifth of the rows; None for candidate sets."""
    clear: float
    """The share of the labels held to be right that the features predict, above chance."""
    level: float | None
    """The agreement of features and labels over all rows, as a share of that over the surest, above chance; None for
    candidate sets."""
    left_alone: tuple[str, ...]
    """The sites at which the features do not bear out the estimated noise."""
    trusted: bool
    """Whether the features bear out the estimated noise at any site."""
    support: str
    """What the features say for or against a repair, in words."""
    findings: tuple[str, ...]
    """The most important findings, as sentences."""
    advice: str
    """Whether a repair would help."""
    cautions: tuple[str, ...]
    """Why some of it may be wrong, as sentences."""
    sites: tuple[AuditedSite, ...]
    truth: KnownTruth | None
    others: int = 0
    """How many other sites were judged together with these: at a real site, all but itself."""
    sets: bool = False
    """Whether the labels are candidate sets: then one is wrong if it misses the true class, and none is changed."""


class OverviewSite(Part, frozen=True):
    """What one site says of itself."""

    site: str
    rows: int
    noise: float
    """The estimated share of wrong labels."""
    changes: int
    """Labels that a repair would change."""


class AuditOverview(WholeFile, frozen=True):
    """All that a coordinator writes to `audit.json`; fields that `AuditSummary` has too mean the same."""

    in_ascii: ClassVar[bool] = False

    data: str
    method: str
    features: str
    clean_rows: int
    classes: tuple[str, ...]
    rows: int
    noise: float
    changes: int
    agreement: float
    contradicted: float | None
    clear: float
    level: float | None
    left_alone: tuple[str, ...]
    trusted: bool
    support: str
    joint: tuple[tuple[float, ...], ...]
    """[true class, given class]: the estimated shares of all sites' rows; empty for candidate sets."""
    mixed_up: tuple[MixUp, ...]
    """The classes that all sites together most often take for others."""
    findings: tuple[str, ...]
    advice: str
    cautions: tuple[str, ...]
    sites: tuple[OverviewSite, ...]
    sets: bool = False
