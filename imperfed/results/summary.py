"""The summary of a run: everything that `summary.json` holds, as types.

The names of the fields are the keys of the file, except for `global` and `class`, which are reserved in Python. What
does not apply to a run (a repair, a target, fairness, ...) is left out of the file; a figure that applies but is
undefined, such as the accuracy of a site without test rows, is null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import field

from imperfed.evaluation.fairness import FairnessSummary
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.results.auto_summary import AutoSummary
from imperfed.results.data_facts import DataFacts
from imperfed.results.defence_summary import DefenceSummary
from imperfed.results.label_summary import LabelSummary
from imperfed.results.part import Part, WholeFile
from imperfed.results.prediction_figures import CalibrationSummary, PredictionSummary
from imperfed.results.privacy_summary import PrivacySummary
from imperfed.results.repair_summary import RepairSummary


class OverSites(Part, frozen=True):
    """The leading figure over the sites that have one; None if none has."""

    mean: float | None
    weighted: float | None
    """The mean weighted by test rows."""
    worst: float | None
    n: int
    """The number of test rows, each counted once."""

    @classmethod
    def of(cls, scores: Sequence[tuple[float, int]], same_rows: bool = False) -> OverSites:
        """Combine the values of sites, each with its number of test rows; values that are not finite are skipped.

        `same_rows`: whether all sites are tested on the same rows, which count once.
        """
        measured = [(value, n) for value, n in scores if math.isfinite(value)]
        if not measured:
            return cls(None, None, None, 0)
        total = sum(n for _, n in measured)
        return cls(
            mean=math.fsum(value for value, _ in measured) / len(measured),
            weighted=math.fsum(value * n for value, n in measured) / total,
            worst=min(value for value, _ in measured),
            n=max(n for _, n in measured) if same_rows else total,
        )


class GlobalFigure(Part, frozen=True):
    """A figure of the global model on the common test set or on validation rows."""

    value: float | None
    n: int


class ValidationSummary(Part, frozen=True):
    """The best round by the rows that the sites hold out from training."""

    figure: str
    """The name of the score, which depends on the kind of labels."""
    round: int
    """The best round; 0 if the rows held out say nothing."""
    score: float | None
    """The score of that round: the mean over sites, weighted by how much their rows say."""
    rows: int
    """The number of rows held out."""
    kept: bool
    """Whether models, labels and figures are those of the best round; otherwise of the last one."""
    early: bool
    """Whether the run ended before its last round, because no later round was better."""

    def sentence(self, rounds: int) -> str:
        """Return which round was best, and why the run ended, after so many rounds."""
        if not self.round:
            return f"the {self.rows} rows held out say nothing about any model, so the last round is kept"
        score = "" if self.score is None else f" ({self.figure} {100 * self.score:.2f} %)"
        best = f"best of {rounds} rounds by {self.rows} rows held out: round {self.round}{score}"
        results = "the results are those of that round" if self.kept else "the results are those of the last round"
        return f"{best}; {results}{'; ended early, since no later round was better' if self.early else ''}"


class SiteSummary(Part, frozen=True, omit_defaults=True):
    """One site."""

    site: str
    train: int
    """The number of training rows."""
    test: int
    value: float | None
    """The leading figure on the site's test rows."""
    labels: float | None
    """The share of its labels resolved correctly or, if labels are missing, the AUROC of those filled in."""
    auroc_annotated: float | None = None
    """The mean over the classes that the site annotates, if labels are missing."""
    auroc_never_annotated: float | None = None
    """The mean over the classes that only other sites annotate."""


class ClassSummary(Part, frozen=True):
    """One class of a run with missing labels; each AUROC is a mean over sites."""

    name: str = field(name="class")
    annotated_at: tuple[str, ...]
    """The sites that annotate it."""
    annotations: int
    """The number of training rows annotated for it."""
    positives: int
    """The number of training rows annotated as having it."""
    auroc: float | None
    auroc_annotated: float | None
    """Over the sites that annotate the class."""
    auroc_never_annotated: float | None
    """Over the other sites."""


class Summary(WholeFile, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of a finished run."""

    title: str
    """The method together with its objective, repair, attack and defence."""
    method: str
    objective: str
    data: str
    seed: int
    data_seed: int
    seconds: float | None
    """None in a site's own summary: only the coordinator measures the time."""
    rounds: int
    metric: str
    """The name of the leading figure."""
    personal: OverSites
    """The leading figure of the sites' models."""
    common: dict[str, GlobalFigure] = field(name="global")
    """Figures of the global model by name; the names of those on validation rows say so."""
    sites: tuple[SiteSummary, ...]
    sent: dict[str, tuple[int, ...]]
    """Name and shape of everything that left a site."""
    account: dict[str, float]
    """Figures that the algorithm reports about itself, such as the epsilon it spent."""
    input: tuple[int, ...]
    """The shape of an input."""
    features: int
    """The number of features of sparse inputs; 0 for dense inputs."""
    standardised: bool
    """Whether inputs were standardised with `models/scale.safetensors`."""
    classes: tuple[str, ...]
    facts: DataFacts
    labels: LabelSummary | None = None
    by_class: tuple[ClassSummary, ...] = ()
    predictions: PredictionSummary | None = None
    """Class by class, where test rows have one class each."""
    calibration: CalibrationSummary | None = None
    target: TargetReached | None = None
    validation: ValidationSummary | None = None
    repair: RepairSummary | None = None
    suspicions: DefenceSummary | None = None
    privacy: PrivacySummary | None = None
    fairness: FairnessSummary | None = None
    auto: AutoSummary | None = None

    @property
    def temperature(self) -> float:
        """What the logits of the models are divided by before they are probabilities; 1 where it is not fitted."""
        return 1.0 if self.calibration is None else self.calibration.temperature or 1.0

    @property
    def early(self) -> bool:
        """Whether the run ended before its last round, by rows held out or by what privacy allows."""
        return any(part is not None and part.early for part in (self.validation, self.privacy))

    @property
    def headline(self) -> float | None:
        """The figure by which runs are compared: the mean over sites, or that of the global model if they have none."""
        common = self.common.get(self.metric)
        if self.personal.mean is None and common is not None:
            return common.value
        return self.personal.mean
