"""The report section on fairness: figures with their counts, per round and at the end."""

from __future__ import annotations

from imperfed.evaluation.fairness import BY, FAIR, FIGURES, FairnessSummary
from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section
from imperfed.report.words import count, per_cent


def fairness(run: RunFiles) -> Section | None:
    """Describe equal opportunity and statistical parity; None if they were not measured."""
    if run.summary is None or run.summary.fairness is None:
        return None
    figures, facts = run.summary.fairness, run.summary.facts
    text = (
        f"How much more often “{figures.unprivileged}” is predicted for {figures.target} than for everyone else: "
        "among the rows of that class (EOD, equal opportunity difference) and among all rows (SPD, statistical parity "
        "difference). 0 is fair. Over the pooled test rows of all sites, with 95 % bootstrap intervals over rows; a "
        "figure over no rows is undefined."
    )
    points = figures.in_words() + accuracies(figures)
    if facts.adversaries:
        points += [f"Adversaries of the simulated attack: {', '.join(facts.adversaries)}", *facts.attack]
    return Section("Fairness", text, pictures(run), "Figures", points)


def accuracies(figures: FairnessSummary) -> list[str]:
    """Describe the accuracy of each group."""
    return [
        f"Accuracy by {by} group, {name}: {per_cent(group.accuracy)}, n = {count(group.rows)}"
        for by, between in figures.groupings()
        for name, group in (("everyone else", between.rest), (figures.target, between.target))
    ]


def pictures(run: RunFiles) -> list[Picture]:
    """Draw every figure over the rounds, by candidate group."""
    drawn = []
    for name in FIGURES:
        if course := run.history.get(f"{FAIR}{name}/{BY[0]}", {}):
            values = {r: [value for value, _ in sites.values()] for r, sites in course.items()}
            svg = plots.curves(f"fair-{name}", f"{name.upper()} by round", values, name.upper(), name.upper())
            drawn.append(Picture(svg, f"{name.upper()} by candidate group after each round."))
    return drawn
