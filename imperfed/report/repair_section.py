"""The report section on a repair of labels before training."""

from __future__ import annotations

from collections.abc import Sequence

from imperfed.evaluation.label_figures import RepairFigures
from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section
from imperfed.report.words import amount, count, many, per_cent, product
from imperfed.results.repair_summary import RepairedSite, RepairSummary

WORST = 5
"""How many mix-ups of classes are named."""


def section(run: RunFiles) -> Section | None:
    """Describe how many labels were changed, how correctly if the truth is known, and at what cost."""
    if run.summary is None or (repair := run.summary.repair) is None:
        return None
    text = [changes(repair), *([f"{repair.support[0].upper()}{repair.support[1:]}."] if repair.support else [])]
    if repair.groups > 1:
        index = repair.adjusted_rand_index
        agreement = "" if index is None else f" (adjusted Rand index against their tasks: {index:.2f})"
        text.append(f"It formed {repair.groups} groups of sites, each with its own model{agreement}.")
    sent = ", ".join(f"{name} ({product(shape)})" for name, shape in repair.sent.items()) or "nothing"
    text += mixed_up(repair.sites)
    text.append(f"A site sent {sent}; {amount(repair.bytes.up)} went up in total, {amount(repair.bytes.down)} down.")
    return Section("Repair of labels", " ".join(text), noise(repair.sites))


def changes(repair: RepairSummary) -> str:
    """Describe how many labels were changed, and how correctly if the truth is known."""
    text = f"{repair.name} changed {count(repair.changed)} of {many(repair.n, 'label')} before training."
    return f"{text} {rightness(repair.figures)}" if repair.figures else text


def rightness(figures: RepairFigures) -> str:
    """Compare before and after, in sentences."""
    return (
        f"Of the labels, {per_cent(figures.noise_before)} were wrong before and {per_cent(figures.noise_after)} "
        f"after. {per_cent(figures.recall)} of the wrong labels were changed, {per_cent(figures.precision)} of "
        f"the changed ones had been wrong, and {per_cent(figures.damage)} of the correct ones were changed."
    )


def mixed_up(sites: Sequence[RepairedSite]) -> list[str]:
    """Name the classes most often taken for others, over all sites; nothing if the repair does not estimate it."""
    found = [(one.rows, site.site, one) for site in sites for one in site.mixed_up or ()]
    worst = sorted(found, key=lambda entry: -entry[0])[:WORST]
    named = [f"{site}: {one.true} taken for {one.given} in {per_cent(one.share)} of its rows" for _, site, one in worst]
    return [f"Most frequent mistakes, as estimated: {'; '.join(named)}."] if named else []


def noise(sites: Sequence[RepairedSite]) -> list[Picture]:
    """Draw the share of wrong labels at every site; nothing if a site could not estimate it."""
    figures = [row.figures for row in sites if row.figures is not None]
    shares = {
        "estimated": [row.noise_estimate for row in sites],
        "before": [one.noise_before for one in figures],
        "after": [one.noise_after for one in figures],
    }
    if None in shares["estimated"]:
        return []
    per_mille = {
        title: [round(1000 * share) for share in column if share is not None]
        for title, column in shares.items()
        if column
    }
    svg = plots.heat_map(
        "noise",
        "wrong labels per thousand",
        list(per_mille.values()),
        ("", list(per_mille)),
        ("", [row.site for row in sites]),
    )
    return [Picture(svg, "Wrong labels per thousand at each site: its own estimate, and the true figures if known.")]
