"""The part of a run's summary about the labels that it inferred."""

from __future__ import annotations

from imperfed.results.part import Part


class ResolvedLabels(Part, frozen=True, tag_field="kind", tag="candidates"):
    """Ambiguous labels from which one class was chosen per training row; figures are None if the truth is unknown."""

    accuracy: float | None
    picking_at_random: float
    """The expected accuracy of a random choice among the classes that each label names."""
    mean_confidence: float
    n: int
    """The number of training rows."""
    together: tuple[tuple[int, ...], ...]
    """[class][class]: the number of labels, such as candidate sets, that name both."""
    mistaken: tuple[tuple[int, ...], ...] | None
    """[true class][chosen class]: the number of labels resolved wrongly."""

    @property
    def leading(self) -> float | None:
        """The figure shown in comparisons."""
        return self.accuracy


class FilledLabels(Part, frozen=True, tag_field="kind", tag="missing"):
    """Missing labels that were filled in; figures are None if the truth is unknown."""

    filled_in: int
    """The number of missing labels of classes that some site annotates."""
    mean_confidence: float
    accuracy: float | None
    """The share that is correct with a threshold of 0.5."""
    always_absent: float | None
    """The share that would be correct if every missing label were taken as absent."""
    auroc: float | None
    n: int
    """The number of filled-in labels whose truth is known."""

    @property
    def leading(self) -> float | None:
        """The figure shown in comparisons."""
        return self.auroc


LabelSummary = ResolvedLabels | FilledLabels
"""The figures of the inferred labels; `kind` distinguishes the two in the file."""
