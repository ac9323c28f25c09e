"""The section about rows that the sites hold out: how far models agree with them, and which round was best."""

from __future__ import annotations

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section, from_to
from imperfed.report.words import count, named
from imperfed.results.metrics import VALIDATION

OVERALL = "*"


def section(run: RunFiles) -> Section | None:
    """Draw the score on the rows held out per round, and say which round was best; None if no site holds rows out."""
    metric = next((name for name in run.history if name.startswith(VALIDATION)), None)
    validation = run.summary.validation if run.summary else None
    if metric is None and validation is None:
        return None
    text = ""
    if run.summary and validation:
        sentence = validation.sentence(run.summary.rounds)
        text = f"{sentence[0].upper()}{sentence[1:]}."
    return Section("Rows held out", text, [] if metric is None else [_curve(run, metric)])


def when(run: RunFiles) -> str:
    """Return which round the figures of a finished run are from, if it is not the last one; else nothing."""
    validation = run.summary.validation if run.summary else None
    if run.summary is None or validation is None or not validation.kept or validation.round == run.summary.rounds:
        return ""
    return f", round {validation.round}"


def _curve(run: RunFiles, metric: str) -> Picture:
    course, what = run.history[metric], named(metric.removeprefix(VALIDATION))
    sites = {
        r: [100 * value for site, (value, _) in figures.items() if site != OVERALL] for r, figures in course.items()
    }
    overall = {r: 100 * figures[OVERALL][0] for r, figures in course.items() if OVERALL in figures}
    shown = {r: values for r, values in sites.items() if values}
    label = f"{what} on rows held out, mean over sites in per cent: {from_to(shown)}"
    svg = plots.curves("validation", label, shown, f"{what}, %", "the only site", overall, "mean by weight")
    n = course[max(course)].get(OVERALL, (0.0, 0))[1]
    caption = (
        f"{what} of the sites' models on rows that the sites hold out, against the labels as given, without their "
        f"truth; total weight {count(n)}."
    )
    return Picture(svg, f"{caption[0].upper()}{caption[1:]}")
