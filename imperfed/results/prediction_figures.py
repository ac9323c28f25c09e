"""Figures of what the models delivered predict for test rows: class by class, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from imperfed.evaluation.prediction_counts import (
    BINS,
    NUMBER,
    RIGHT,
    SURE,
    PredictionCounts,
    calibration_error,
)
from imperfed.evaluation.temperature import AT_REAL_SITES, Temperature
from imperfed.results.part import Part

NAMED = 8
"""Most classes that a sentence names."""
Count = int | float
"""Whole, unless sites with different models are tested on the same rows: then a mean over them."""


class PredictedClass(Part, frozen=True):
    """One class over the test rows of all sites, each row once."""

    name: str = field(name="class")
    support: int
    """Test rows of the class."""
    predicted: Count
    """Test rows for which it is predicted."""
    recall: float | None
    """The share of its rows for which it is predicted; None without rows."""
    precision: float | None
    """The share of such predictions that are right; None if it is never predicted."""


class PredictionSummary(Part, frozen=True):
    """Predictions for test rows that have one class each."""

    n: int
    """Test rows of all sites, each counted once."""
    classes: tuple[PredictedClass, ...]
    confusion: tuple[tuple[Count, ...], ...]
    """[true class][predicted class]: test rows."""

    @classmethod
    def of(cls, counts: PredictionCounts | None, names: Sequence[str]) -> PredictionSummary | None:
        """Return the figures of these counts; None where there are none."""
        if counts is None or counts.confusion is None or not counts.confusion.sum():
            return None
        confusion = [[whole(n) for n in row] for row in counts.confusion.tolist()]
        supports = [round(sum(row)) for row in confusion]
        predicted = [whole(sum(column)) for column in zip(*confusion, strict=True)]
        classes = tuple(
            PredictedClass(
                name,
                supports[c],
                predicted[c],
                confusion[c][c] / supports[c] if supports[c] else None,
                confusion[c][c] / predicted[c] if predicted[c] else None,
            )
            for c, name in enumerate(names)
        )
        return cls(sum(supports), classes, tuple(map(tuple, confusion)))

    def worst(self) -> list[PredictedClass]:
        """Return the classes that have test rows, those of lowest recall first, among equals the most frequent."""
        tested = [one for one in self.classes if one.recall is not None]
        return sorted(tested, key=lambda one: (one.recall or 0.0, -one.support))

    def taken_for(self, name: str) -> str:
        """Return the class for which rows of a class are taken most often by mistake; empty if they never are."""
        names = [one.name for one in self.classes]
        own = names.index(name)
        wrong = [0 if c == own else n for c, n in enumerate(self.confusion[own])]
        return names[wrong.index(max(wrong))] if max(wrong) else ""

    def sentences(self) -> list[str]:
        """Return which classes are never predicted though there are test rows, and which have no test rows."""
        never = [one for one in self.classes if one.support and not one.predicted]
        untested = [one.name for one in self.classes if not one.support]
        lines = []
        if never:
            rows = sum(one.support for one in never)
            lines.append(f"never predicted: {listed([one.name for one in never])} ({rows} test row{'s' * (rows != 1)})")
        if untested:
            lines.append(f"no test rows of: {listed(untested)}")
        return lines


class ReliabilityBin(Part, frozen=True):
    """Predictions of about the same confidence."""

    low: float
    high: float
    n: Count
    confidence: float
    """The mean."""
    right: float
    """The share that is right."""


class Reliability(Part, frozen=True):
    """How sure predictions for test rows are, and how many of them are right."""

    n: int
    unit: str
    """What `n` counts: rows, or where a row may have several classes, cells whose truth is known."""
    confidence: float
    """The mean."""
    right: float
    """The share that is right."""
    error: float
    """The expected calibration error over ten bins: how far confidence and the share right are apart."""
    bins: tuple[ReliabilityBin, ...]
    """Those that are not empty."""

    @classmethod
    def of(cls, counts: PredictionCounts | None) -> Reliability | None:
        """Return the figures of these counts; None where there are none."""
        total = 0.0 if counts is None else float(counts.bins[:, NUMBER].sum())
        if counts is None or not total:
            return None
        bins = tuple(
            ReliabilityBin(b / BINS, (b + 1) / BINS, whole(number), sure / number, right / number)
            for b, (number, sure, right) in enumerate(counts.bins.tolist())
            if number
        )
        sure, right = (float(counts.bins[:, column].sum()) / total for column in (SURE, RIGHT))
        unit = "cells" if counts.confusion is None else "rows"
        return cls(round(total), unit, sure, right, calibration_error(counts.bins), bins)


class CalibrationSummary(Part, frozen=True, omit_defaults=True):
    """Whether confidence was fitted on rows held out, and what it is worth on test rows."""

    temperature: float | None
    """What logits are divided by; None where it is not fitted."""
    rows: int = 0
    """The rows held out that it is fitted on."""
    reason: str = ""
    """Why it is not fitted."""
    test: Reliability | None = None
    """None without test rows."""

    @classmethod
    def of(cls, temperature: Temperature, counts: PredictionCounts | None) -> CalibrationSummary:
        """Return the figures of a run."""
        value = None if temperature.reason else temperature.value
        return cls(value, temperature.rows, temperature.reason, Reliability.of(counts))

    def sentence(self) -> str:
        """Return what a confidence means in words."""
        fit = f"not adjusted, since {self.reason}"
        if self.temperature is not None:
            fit = f"adjusted on the labels of {self.rows} rows held out (temperature {self.temperature:g})"
        if self.test is None and self.reason == AT_REAL_SITES:
            return "how sure the models are, and figures class by class: in the report that each site writes for itself"
        if self.test is None:
            return f"confidence of the models: {fit}; how often they are right was not measured"
        test = self.test
        return (
            f"confidence on the test rows: {100 * test.confidence:.0f} % on average, and {100 * test.right:.0f} % of "
            f"predictions are right (n = {test.n} {test.unit}, calibration error {100 * test.error:.1f} points); {fit}"
        )


def whole(number: float) -> Count:
    """Return a count as a whole number where it is one."""
    return round(number) if abs(number - round(number)) < 1e-9 else number


def listed(names: Sequence[str]) -> str:
    """Return names in a row; of many, the first ones and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
