"""Results on a console: fractions are shown in per cent."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imperfed.algorithms import catalogue
from imperfed.cli.catalogue import about
from imperfed.cli.unmeasured import why_blank
from imperfed.evaluation.evaluator import VALIDATION, Scores, figure
from imperfed.evaluation.fairness import FAIR
from imperfed.experiments.blank_cells import measured, reasons
from imperfed.experiments.comparison import ABOUT_ALONE, ALONE, Line, best, brought, further, labels_title, unlike
from imperfed.report.repair_section import changes
from imperfed.report.words import many
from imperfed.results.defence import sentences
from imperfed.results.summary import ClassSummary, FilledLabels, OverSites, ResolvedLabels, SiteSummary, Summary

NAMED = 3  # most sites listed by name in a table cell; more are counted
ROUNDING = 1e-9  # rounding error of a mean over sites
APART = ("annotated, %", "never, %")
"""Titles of the figures over the classes that a site annotates and over those that it never annotates."""


def per_cent(fraction: float | None) -> str:
    """Return a fraction as shown in a table."""
    return "" if fraction is None else f"{100 * fraction:.2f}"


def run_table(console: Console, summary: Summary, folder: Path) -> None:
    """Print a finished run, site by site, and the paths of what it wrote."""
    if summary.auto:
        console.print(summary.auto.sentence(), style="bold")
    if not summary.personal.n and summary.common:  # sites without test sets, of which there may be thousands
        rows = sum(row.train for row in summary.sites)
        console.print(f"{heading(summary)}: {len(summary.sites)} sites, {rows} training rows")
    else:
        sites_table(console, summary)
    if summary.by_class:
        console.print(class_table(summary.by_class, len(summary.sites)))
    for line in sentences_of(summary):
        console.print(line)
    took = "" if summary.seconds is None else f"{summary.seconds:.1f} s. "
    console.print(f"{took}Written:")
    written(console, folder)


def sentences_of(summary: Summary) -> Iterator[str]:
    """Yield what concerns no site in particular, first why figures are blank."""
    yield from why_blank(summary)
    for name, common in summary.common.items():
        where = "validation rows" if name.startswith(VALIDATION) else "common test set"
        value = f"{name.removeprefix(VALIDATION)} {per_cent(common.value)} %"
        yield f"global model, {where}: {value} (n = {common.n})"
    if summary.target:
        yield summary.target.sentence()
    if summary.validation:
        yield summary.validation.sentence(summary.rounds)
    if isinstance(summary.labels, FilledLabels):
        yield filled_sentence(summary.labels)
    elif summary.labels and summary.labels.accuracy is not None:
        yield resolved_sentence(summary.labels)
    if summary.repair:
        yield changes(summary.repair)
    yield from fairness_lines(summary)
    if summary.suspicions:
        yield from sentences(summary.suspicions)


def heading(summary: Summary) -> str:
    """Return which method was run on which data, and for how many rounds."""
    title = f"auto: {summary.title}" if summary.auto else summary.title
    return f"{title} on {summary.data}, {many(summary.rounds, 'round')}"


def sites_table(console: Console, summary: Summary) -> None:
    """Print the figures of the sites."""
    columns: dict[str, list[float | None]] = {f"{summary.metric}, %": [row.value for row in summary.sites]}
    means = [summary.personal.mean]
    for title, values in apart(summary.sites).items():
        columns[title] = values
        means.append(mean(values))
    if title := labels_column(summary):  # a sentence below the table has the share of all rows
        columns[title] = [row.labels for row in summary.sites]
        means.append(None)
    table = Table(title=heading(summary), title_justify="left")
    for name in ("site", "training rows", "test rows", *columns):
        table.add_column(name, justify="left" if name == "site" else "right")
    for row, *figures in zip(summary.sites, *columns.values(), strict=True):
        table.add_row(row.site, str(row.train), str(row.test), *map(per_cent, figures))
    table.add_section()
    rows = str(sum(row.train for row in summary.sites))
    table.add_row("mean over sites", rows, str(summary.personal.n), *map(per_cent, means))
    console.print(table)


def apart(sites: Sequence[SiteSummary]) -> dict[str, list[float | None]]:
    """Return the figures over the classes that a site annotates and over those it never does, where they exist."""
    columns = ([row.auroc_annotated for row in sites], [row.auroc_never_annotated for row in sites])
    return {title: values for title, values in zip(APART, columns, strict=True) if any(v is not None for v in values)}


def labels_column(summary: Summary) -> str:
    """Return the title of the column of label figures; empty where there are none."""
    if isinstance(summary.labels, FilledLabels):
        return "filled in, auroc, %" if summary.labels.accuracy is not None else ""
    return "labels resolved, %" if summary.labels else ""


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the figures that exist."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def class_table(classes: Sequence[ClassSummary], sites: int) -> Table:
    """Return one row per class: which sites annotate it, and its AUROC, split by annotation where models differ."""
    pairs = [(row.auroc_annotated, row.auroc_never_annotated) for row in classes]
    differ = any(abs(a - b) > ROUNDING for a, b in pairs if a is not None and b is not None)
    table = Table(title="class by class, mean over sites", title_justify="left")
    for name in ("class", "annotated at", "positives", "auroc, %", *(APART if differ else ())):
        table.add_column(name, justify="left" if name in ("class", "annotated at") else "right")
    for row, pair in zip(classes, pairs, strict=True):
        count = len(row.annotated_at)
        where = ", ".join(row.annotated_at) if count <= NAMED else f"{count} of {sites} sites"
        figures = (row.auroc, *(pair if differ else ()))
        table.add_row(row.name, where or "nobody", str(row.positives), *map(per_cent, figures))
    return table


def resolved_sentence(labels: ResolvedLabels) -> str:
    """Return how many candidate sets were resolved correctly."""
    return (
        f"labels resolved correctly: {per_cent(labels.accuracy)} % of {labels.n}; "
        f"picking a candidate at random: {per_cent(labels.picking_at_random)} %"
    )


def filled_sentence(labels: FilledLabels) -> str:
    """Return how well missing labels were filled in."""
    if labels.accuracy is None:
        return f"labels filled in: {labels.filled_in}; the true ones are unknown"
    right, absent = per_cent(labels.accuracy), per_cent(labels.always_absent)
    return (
        f"labels filled in: {labels.filled_in}, AUROC {per_cent(labels.auroc)} %, right at 0.5: {right} % of "
        f"{labels.n}; saying absent every time: {absent} %"
    )


def fairness_lines(summary: Summary) -> list[str]:
    """Return how groups are treated or, where the data name groups, how to have it measured."""
    fairness, facts = summary.fairness, summary.facts
    if fairness:
        head = f"fairness of {fairness.target} against the rest, class {fairness.unprivileged}:"
        return [head, *(f"  {line}" for line in fairness.in_words())]
    if facts.attribute is None or summary.metric != "accuracy":
        return []
    return [
        f"fairness between the groups of {facts.attribute} is not measured: set fairness.target (one of "
        f"{', '.join(facts.groups or ())}) and fairness.unprivileged (a class)"
    ]


def written(console: Console, folder: Path) -> None:
    """Print the paths of a run's main results."""
    for name in (
        "report.html",
        "summary.json",
        "metrics.jsonl",
        "trials.json",
        "models",
        "alone",
        "labels",
        "suspicions.parquet",
    ):
        if (folder / name).exists():
            console.print(f"  {folder / name}")


def compare_table(console: Console, lines: Sequence[Line], seeds: Sequence[int], folder: Path) -> None:
    """Print methods side by side, the best in bold, what each of them is, and the paths of what was written."""
    if sentence := brought(lines):
        console.print(sentence, style="bold")
    every, lines = lines, measured(lines)
    top = best(lines)
    columns = {
        "method": [line.method for line in lines],
        "test, %": [per_cent(line.mean) if line.values else "" for line in lines],
    }
    if len(seeds) > 1:
        columns["±"] = [per_cent(line.spread) if line.values else "" for line in lines]
    if any(line.common for line in lines):
        columns["global model, %"] = [per_cent(statistics.fmean(x.common)) if x.common else "" for x in lines]
    if any(line.paper for line in lines):
        columns["paper, %"] = [f"{line.paper:.2f}" if line.paper else "" for line in lines]
    if any(line.labels for line in lines):
        columns[labels_title(lines)] = [per_cent(statistics.fmean(x.labels)) if x.labels else "" for x in lines]
    columns |= further(lines)
    columns["s per run"] = [f"{line.seconds:.1f}" if line.values else "" for line in lines]
    table = Table(title=f"test: {lines[0].over}, {len(seeds)} seed{'s' * (len(seeds) > 1)}", title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right", overflow="fold")
    for line, *cells in zip(lines, *columns.values(), strict=True):
        table.add_row(*cells, style="bold" if line.mean == top else None)
    console.print(table)
    if differs := unlike(lines):
        console.print(differs)
    for sentence in reasons(every):
        console.print(sentence)
    for reason in dict.fromkeys(reason for line in lines for reason in line.diverged):
        console.print(f"diverged: {reason}")
    for part in dict.fromkeys(part for line in lines for part in line.method.split()[0].split("+")):
        console.print(f"{part}: {ABOUT_ALONE if part == ALONE else about(catalogue()[part])}")
    console.print("Written:")
    for path in sorted(folder.iterdir()):
        console.print(f"  {path / 'report.html' if path.is_dir() else path}")


def figures_table(console: Console, figures: dict[str, Scores], as_json: bool) -> None:
    """Print figures that were computed again."""
    if as_json:
        print(json.dumps({s: {m: {"value": figure(v), "n": n} for m, (v, n) in f.items()} for s, f in figures.items()}))
        return
    table = Table()
    names = [name for name in next(iter(figures.values())) if not name.startswith(FAIR)]
    for name in ("site", *(f"{n}, %" for n in names), "n"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for site, scores in figures.items():
        table.add_row(site, *(per_cent(figure(scores[n][0])) for n in names), str(scores[names[0]][1]))
    table.add_section()
    overall = [OverSites.of([scores[name] for scores in figures.values()]) for name in names]
    table.add_row("mean over sites", *(per_cent(one.mean) for one in overall), str(overall[0].n))
    console.print(table)
