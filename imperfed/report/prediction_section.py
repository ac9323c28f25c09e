"""The report sections on what the models predict for test rows: class by class, and how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.words import count, many, per_cent
from imperfed.results.prediction_figures import Count, PredictionSummary, Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDED = 20  # number of classes above which their table is folded
LOWEST = 3  # classes of lowest recall that are named
LARGEST = 160  # area of the point of a bin that holds all predictions


def by_class(run: RunFiles) -> Section | None:
    """Show recall, precision and confusion of every class; None if test rows do not have one class each."""
    predictions = run.summary.predictions if run.summary else None
    if run.summary is None or predictions is None:
        return None
    names, shared = run.summary.classes, run.one_test
    rows, whose = many(predictions.n, "test row"), "of all sites, each by its own site's model"
    if shared:
        whose = "that all sites share: the mean over their models"
    said = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in predictions.sentences())
    lowest = ", ".join(f"{one.name} ({per_cent(one.recall)})" for one in predictions.worst()[:LOWEST])
    text = f"Over {rows} {whose}. Lowest recall: {lowest}. {said}".strip()
    svg = plots.heat_map(
        "confusion",
        "test rows by true and predicted class",
        predictions.confusion,
        ("true", names),
        ("predicted", names),
    )
    caption = f"Confusion matrix: test rows by true class and predicted class, n = {count(predictions.n)}; blank: none."
    return Section("Class by class", text, [Picture(svg, caption)], tables=[_table(predictions)])


def _table(predictions: PredictionSummary) -> ShownTable:
    """Return one row per class, those of lowest recall first."""
    untested = [one for one in predictions.classes if one.recall is None]
    rows = [
        (
            one.name,
            count(one.support),
            _rows(one.predicted),
            per_cent(one.recall),
            per_cent(one.precision),
            predictions.taken_for(one.name),
        )
        for one in (*predictions.worst(), *untested)
    ]
    folded = f"All {len(rows)} classes, the lowest recall first" if len(rows) > FOLDED else ""
    columns = ("class", "test rows", "predicted", "recall", "precision", "most often taken for")
    return ShownTable("Table of classes", columns, rows, folded)


def _rows(number: Count) -> str:
    return count(number) if isinstance(number, int) else f"{number:,.1f}"


def calibration(run: RunFiles) -> Section | None:
    """Say whether confidence was fitted, and compare it with how often predictions are right."""
    found = run.summary.calibration if run.summary else None
    if found is None:
        return None
    sentence = found.sentence()
    text = f"{sentence[0].upper()}{sentence[1:]}."
    if found.test is None:
        return Section("Confidence of the predictions", text)
    more = 100 * (found.test.confidence - found.test.right)
    text += f" On average the models are {'over' if more > 0 else 'under'}confident by {abs(more):.2f} points."
    return Section("Confidence of the predictions", text, [_reliability(found.test)])


def _reliability(test: Reliability) -> Picture:
    def draw(ax: Axes) -> None:
        sure, right = [100 * b.confidence for b in test.bins], [100 * b.right for b in test.bins]
        ax.plot([0, 100], [0, 100], color=plots.QUIET, linewidth=0.8, linestyle=(0, (4, 2)), label="as sure as right")
        ax.plot(sure, right, color=plots.ACCENT, linewidth=1.0)
        sizes = [8 + LARGEST * b.n / test.n for b in test.bins]
        ax.scatter(sure, right, s=sizes, color=plots.ACCENT, label="predictions, by number", clip_on=False)
        ax.set(xlabel="confidence, %", ylabel="right, %", xlim=(0, 103), ylim=(-3, 103))
        ax.grid(color=plots.QUIET, alpha=0.2, linewidth=0.6)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderpad=0, columnspacing=1.2)

    label = "; ".join(f"{100 * b.confidence:.0f} % sure, {100 * b.right:.0f} % right" for b in test.bins)
    svg = plots.render("reliability", f"share of predictions that are right by confidence: {label}", 3.0, draw)
    n = f"n = {count(test.n)} {test.unit}"
    return Picture(svg, f"How often predictions are right on test rows, by confidence, {n}; low: too sure.")
