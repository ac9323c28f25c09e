"""The report's section on fairness: figures with the counts behind them, round by round and at the end."""

from __future__ import annotations

from imperfed.evaluation.fairness import BY, FAIR, FIGURES, FairnessSummary
from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section
from imperfed.report.words import count, per_cent


def fairness(run: RunFiles) -> Section | None:
    """Equal opportunity and statistical parity; None where they were not measured."""
    if run.summary is None or run.summary.fairness is None:
        return None
    figures, facts = run.summary.fairness, run.summary.facts
    text = (
        f"How much more often {figures.target} is given “{figures.unprivileged}” than everybody else: among the rows "
        "whose class it is (EOD, equal opportunity difference) and among all rows (SPD, statistical parity "
        "difference). 0 is fair. Test rows of all sites together, with 95 % bootstrap intervals over rows; a figure of "
        "no rows is undefined."
    )
    points = figures.in_words() + accuracies(figures)
    if facts.adversaries:
        points += [f"Adversaries of the simulated attack: {', '.join(facts.adversaries)}", *facts.attack]
    return Section("Fairness", text, pictures(run), "Figures", points)


def accuracies(figures: FairnessSummary) -> list[str]:
    """Say the accuracy group by group."""
    return [
        f"Accuracy by {by} group, {name}: {per_cent(group.accuracy)}, n = {count(group.rows)}"
        for by, between in figures.groupings()
        for name, group in (("everybody else", between.rest), (figures.target, between.target))
    ]


def pictures(run: RunFiles) -> list[Picture]:
    """Every figure's course over the rounds, by candidate group."""
    drawn = []
    for name in FIGURES:
        if course := run.history.get(f"{FAIR}{name}/{BY[0]}", {}):
            values = {r: [value for value, _ in sites.values()] for r, sites in course.items()}
            svg = plots.curves(f"fair-{name}", f"{name.upper()} by round", values, name.upper(), name.upper())
            drawn.append(Picture(svg, f"{name.upper()} by candidate group after each round."))
    return drawn
