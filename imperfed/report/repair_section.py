"""What the report says of a repair of labels before training."""

from __future__ import annotations

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section
from imperfed.report.words import amount, count, many, per_cent, product
from imperfed.results.folder import Record


def section(run: RunFiles) -> Section | None:
    """How many labels were changed, how right that was where truth is known, and what it cost."""
    if run.summary is None or "repair" not in run.summary:
        return None
    told: Record = run.summary["repair"]
    text = [changes(told)]
    if told["groups"] > 1:
        index = told["adjusted rand index"]
        sure = "" if index is None else f" (adjusted Rand index against their tasks: {index:.2f})"
        text.append(f"It formed {told['groups']} groups of sites, each with a model of its own{sure}.")
    sent = ", ".join(f"{name} ({product(shape)})" for name, shape in told["sent"].items()) or "nothing"
    text.append(
        f"A site sent {sent}; {amount(told['bytes']['up'])} went up in all, {amount(told['bytes']['down'])} down."
    )
    estimates = [row["noise estimate"] for row in told["sites"]]
    return Section("Repair of labels", " ".join(text), [] if None in estimates else [noise(told["sites"])])


def changes(told: Record) -> str:
    """How many labels were changed, and how right that was where truth is known."""
    text = f"{told['name']} changed {count(told['changed'])} of {many(told['n'], 'label')} before training."
    return f"{text} {rightness(told['figures'])}" if told["figures"] else text


def rightness(figures: Record) -> str:
    """Before and after, in sentences."""
    return (
        f"Of the labels, {per_cent(figures['noise before'])} were wrong before and {per_cent(figures['noise after'])} "
        f"after. {per_cent(figures['recall'])} of the wrong labels were changed, {per_cent(figures['precision'])} of "
        f"the changed ones had been wrong, and {per_cent(figures['damage'])} of the right ones were changed."
    )


def noise(sites: list[Record]) -> Picture:
    """The share of wrong labels that every site estimates for itself."""
    names = [row["site"] for row in sites]
    kinds = [("estimated", "noise estimate"), ("before", "noise before"), ("after", "noise after")]
    kinds = [(title, key) for title, key in kinds if key in sites[0]]
    per_mille = [[round(1000 * row[key]) for row in sites] for _, key in kinds]
    svg = plots.heat_map("noise", "wrong labels in a thousand", per_mille, ("", [t for t, _ in kinds]), ("", names))
    return Picture(svg, "Wrong labels in a thousand at each site: as it estimates them, and in truth where known.")
