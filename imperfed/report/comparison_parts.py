"""What the page of a comparison shows of its runs: curves, sites, classes, cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from imperfed.report import plots
from imperfed.report.compared_runs import ComparedMethod, ComparedRuns
from imperfed.report.run_files import COMMON, PERSONAL
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.series_plots import several_curves
from imperfed.report.words import amount, many, named, per_cent, product
from imperfed.results.summary import Summary

FOLDED = 20
"""Rows above which a table is folded."""


def sections_of(compared: ComparedRuns) -> Iterator[Section | None]:
    """Yield the sections about the runs; None for what does not apply."""
    ran = [method for method in compared.methods if method.summaries]
    if not ran:
        return
    yield curves(ran)
    yield sites(ran)
    yield classes(ran)
    yield cost(ran)


def curves(ran: Sequence[ComparedMethod]) -> Section | None:
    """Draw the leading figure and the training loss of every method over the rounds."""
    metric, shown = ran[0].summaries[0].metric, ran[: len(plots.SERIES)]
    what = named(metric)
    left_out = f" The best {len(shown)} of {len(ran)} methods." if len(shown) < len(ran) else ""
    pictures = []
    for name, courses, factor, axis, caption in (
        ("tests", (f"{PERSONAL}{metric}", f"{COMMON}{metric}"), 100.0, f"{what}, %", f"Test {what}"),
        ("losses", ("train/loss",), 1.0, "training loss", "Training loss"),
    ):
        found = {method.title: first_course(method, courses, factor) for method in shown}
        found = {title: curve for title, curve in found.items() if curve}
        if found:
            label = "; ".join(f"{title} {curve[max(curve)]:.4g}" for title, curve in found.items())
            svg = several_curves(name, f"{axis} in the last round: {label}", found, axis)
            pictures.append(Picture(svg, f"{caption} by round, mean over sites and seeds.{left_out}"))
    return Section("Curves", "", pictures) if pictures else None


def first_course(method: ComparedMethod, metrics: Sequence[str], factor: float) -> dict[int, float]:
    """Return the course of the first of these metrics that was measured."""
    found = next((course for metric in metrics if (course := method.course(metric))), {})
    return {round: factor * value for round, value in found.items()}


def sites(ran: Sequence[ComparedMethod]) -> Section | None:
    """Show every site's figure by method, mean over the seeds."""
    if not any(row.value is not None for row in ran[0].summaries[0].sites):
        return None
    what = f"{named(ran[0].summaries[0].metric)} on each site's own test rows"
    seeds = many(len(ran[0].summaries), "seed")
    text = f"{what[0].upper()}{what[1:]}, mean over {seeds}." + (
        " Each seed draws another split where the split is simulated." if len(ran[0].summaries) > 1 else ""
    )
    return by_method("Sites", text, "site", ran, lambda s: {row.site: row.value for row in s.sites})


def classes(ran: Sequence[ComparedMethod]) -> Section | None:
    """Show recall, or AUROC where labels are missing, of every class by method."""
    if any(summary.by_class for method in ran for summary in method.summaries):
        text = "AUROC of every class, mean over sites and seeds."
        return by_method("Classes", text, "class", ran, lambda s: {row.name: row.auroc for row in s.by_class})
    if any(summary.predictions for method in ran for summary in method.summaries):
        text = "Recall of every class over the test rows of all sites, mean over seeds."
        return by_method("Classes", text, "class", ran, recalls)
    return None


def recalls(summary: Summary) -> Mapping[str, float | None]:
    """Return the recall of every class of a run."""
    predictions = summary.predictions
    return {} if predictions is None else {one.name: one.recall for one in predictions.classes}


def by_method(
    title: str,
    text: str,
    rows: str,
    ran: Sequence[ComparedMethod],
    figures: Callable[[Summary], Mapping[str, float | None]],
) -> Section:
    """Return a table of figures with names, one column for each method."""
    found = [method.over_seeds(figures) for method in ran]
    names = list(dict.fromkeys(name for one in found for name in one))
    cells = [[name, *(per_cent(one.get(name)) for one in found)] for name in names]
    folded = f"All {len(names)}, one by one" if len(names) > FOLDED else ""
    table = ShownTable(f"{title} by method", [rows, *(method.title for method in ran)], cells, folded)
    return Section(title, text, tables=[table])


def cost(ran: Sequence[ComparedMethod]) -> Section:
    """Show what a run of every method costs: time, and what travels."""
    columns = ("method", "rounds", "seconds", "seconds per round", "up, all sites", "down, all sites", "sent by a site")
    table = ShownTable("Cost by method", columns, [cost_row(method) for method in ran], said=(6,))
    text = (
        "One run, mean over the seeds: time on this machine with evaluation, and bytes of the model and what goes "
        "with it, before encryption and framing. Times of runs side by side say little."
    )
    return Section("Cost", text, tables=[table])


def cost_row(method: ComparedMethod) -> list[str]:
    """Return the cells of a method."""
    rounds = fmean(summary.rounds for summary in method.summaries)
    seconds = fmean(summary.seconds or 0.0 for summary in method.summaries)
    ended = [run for run in method.runs if run.summary]
    up, down = (fmean(run.total(f"bytes/{way}") for run in ended) for way in ("up", "down"))
    sent = ", ".join(f"{name} ({product(shape)})" for name, shape in method.summaries[0].sent.items())
    return [
        method.title,
        f"{rounds:.0f}",
        f"{seconds:.1f}",
        f"{seconds / max(rounds, 1):.2f}",
        amount(up) if up else "nothing",
        amount(down) if down else "nothing",
        sent or "nothing",
    ]
