"""Results on a console: fractions become per cent."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imperfed.algorithms import catalogue
from imperfed.cli.catalogue import about
from imperfed.evaluation.evaluator import ANNOTATED, NEVER_ANNOTATED, VALIDATION, Scores, figure
from imperfed.evaluation.fairness import FAIR, in_words
from imperfed.evaluation.time_to_target import sentence
from imperfed.experiments.comparison import Line, best, further, labels_title, unlike
from imperfed.report.repair_section import changes
from imperfed.report.words import many
from imperfed.results import defence as suspicions
from imperfed.results.folder import Record
from imperfed.results.write import over_sites

NAMED = 3  # sites named in a table before they are counted
ROUNDING = 1e-9  # of a mean over sites
APART = {ANNOTATED: "annotated, %", NEVER_ANNOTATED: "never, %"}
"""Titles of the figures over the classes that a site annotates and over those that it never does."""


def per_cent(fraction: float | None) -> str:
    """A fraction as it stands in a table."""
    return "" if fraction is None else f"{100 * fraction:.2f}"


def run_table(console: Console, summary: Record, folder: Path) -> None:
    """A finished run, site by site, and the paths of what it wrote."""
    labels = summary["labels"]
    if not summary["personal"]["n"] and summary["global"]:  # sites without test sets, of which there may be thousands
        rows = sum(row["train"] for row in summary["sites"])
        console.print(f"{heading(summary)}: {len(summary['sites'])} sites, {rows} training rows")
    else:
        sites_table(console, summary)
    if summary.get("by class"):
        console.print(class_table(summary["by class"], len(summary["sites"])))
    for name, one in summary["global"].items():
        where = "validation rows" if name.startswith(VALIDATION) else "common test set"
        value = f"{name.removeprefix(VALIDATION)} {per_cent(one['value'])} %"
        console.print(f"global model, {where}: {value} (n = {one['n']})")
    if "target" in summary:
        console.print(sentence(summary["target"]))
    if "filled in" in labels:
        console.print(filled_sentence(labels))
    elif labels and labels["accuracy"] is not None:
        console.print(
            f"labels resolved correctly: {per_cent(labels['accuracy'])} % of {labels['n']}; "
            f"picking a candidate at random: {per_cent(labels['picking at random'])} %"
        )
    if "repair" in summary:
        console.print(changes(summary["repair"]))
    for line in (*fairness_lines(summary), *suspicions.told(summary.get("suspicions", {}))):
        console.print(line)
    took = "" if summary["seconds"] is None else f"{summary['seconds']:.1f} s. "
    console.print(f"{took}Written:")
    written(console, folder)


def heading(summary: Record) -> str:
    """What was run on what, and for how long."""
    return f"{summary['title']} on {summary['data']}, {many(summary['rounds'], 'round')}"


def sites_table(console: Console, summary: Record) -> None:
    """The figures of the sites."""
    metric, labels, personal = summary["metric"], summary["labels"], summary["personal"]
    apart = [name for name in APART if any(row.get(name) is not None for row in summary["sites"])]
    resolved = bool(labels) and ("filled in" not in labels or labels["accuracy"] is not None)
    table = Table(title=heading(summary), title_justify="left")
    for name in ("site", "training rows", "test rows", f"{metric}, %", *(APART[name] for name in apart)):
        table.add_column(name, justify="left" if name == "site" else "right")
    if resolved:
        table.add_column("filled in, auroc, %" if "filled in" in labels else "labels resolved, %", justify="right")
    for row in summary["sites"]:
        figures = [row[name] for name in (metric, *apart)] + ([row["labels"]] if resolved else [])
        table.add_row(row["site"], str(row["train"]), str(row["test"]), *map(per_cent, figures))
    table.add_section()
    rows = str(sum(row["train"] for row in summary["sites"]))
    figures = [personal["mean"], *(mean([row[name] for row in summary["sites"]]) for name in apart)]
    # Of the labels worked out a sentence below tells the share of all rows.
    table.add_row("mean over sites", rows, str(personal["n"]), *map(per_cent, figures), *[""] * resolved)
    console.print(table)
    if not personal["n"]:
        console.print("there are no test rows (they need true labels), so no model was measured")


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the figures that there are."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def class_table(classes: Sequence[Record], sites: int) -> Table:
    """Every class, who annotates it, and its AUROC: one where all sites share a model, two where it depends on that."""
    pairs = [(row[ANNOTATED], row[NEVER_ANNOTATED]) for row in classes]
    differ = any(abs(a - b) > ROUNDING for a, b in pairs if a is not None and b is not None)
    columns = {"auroc": "auroc, %"} | (APART if differ else {})
    table = Table(title="class by class, mean over sites", title_justify="left")
    for name in ("class", "annotated at", "positives", *columns.values()):
        table.add_column(name, justify="left" if name in ("class", "annotated at") else "right")
    for row in classes:
        where = row["annotated at"]
        told = ", ".join(where) if len(where) <= NAMED else f"{len(where)} of {sites} sites"
        table.add_row(row["class"], told or "nobody", str(row["positives"]), *(per_cent(row[name]) for name in columns))
    return table


def filled_sentence(labels: Record) -> str:
    """How well missing labels were filled in."""
    if labels["accuracy"] is None:
        return f"labels filled in: {labels['filled in']}; the true ones are unknown"
    right, absent = per_cent(labels["accuracy"]), per_cent(labels["always absent"])
    return (
        f"labels filled in: {labels['filled in']}, AUROC {per_cent(labels['auroc'])} %, right at 0.5: {right} % of "
        f"{labels['n']}; saying absent every time: {absent} %"
    )


def fairness_lines(summary: Record) -> list[str]:
    """How groups are treated, or how to have it measured where the data name groups."""
    fair, facts = summary.get("fairness"), summary["facts"]
    if fair:
        head = f"fairness of {fair['target']} against the rest, class {fair['unprivileged']}:"
        return [head, *(f"  {line}" for line in in_words(fair))]
    if "attribute" not in facts or summary["metric"] != "accuracy":
        return []
    return [
        f"fairness between the groups of {facts['attribute']} is not measured: set fairness.target (one of "
        f"{', '.join(facts['groups'])}) and fairness.unprivileged (a class)"
    ]


def written(console: Console, folder: Path) -> None:
    """The paths of a run's products that a user looks for first."""
    for name in ("report.html", "summary.json", "metrics.jsonl", "models", "labels", "suspicions.parquet"):
        if (folder / name).exists():
            console.print(f"  {folder / name}")


def compare_table(console: Console, lines: Sequence[Line], seeds: Sequence[int], folder: Path) -> None:
    """Methods side by side, best in bold, what each of them is, and the paths of what was written."""
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
    columns["s a run"] = [f"{line.seconds:.1f}" if line.values else "" for line in lines]
    table = Table(title=f"test: {lines[0].over}, {len(seeds)} seed{'s' * (len(seeds) > 1)}", title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right", overflow="fold")
    for line, *cells in zip(lines, *columns.values(), strict=True):
        table.add_row(*cells, style="bold" if line.mean == top else None)
    console.print(table)
    if differs := unlike(lines):
        console.print(differs)
    for said in dict.fromkeys(said for line in lines for said in line.diverged):
        console.print(f"diverged: {said}")
    for part in dict.fromkeys(part for line in lines for part in line.method.split()[0].split("+")):
        console.print(f"{part}: {about(catalogue()[part])}")
    console.print("Written:")
    for path in sorted(folder.iterdir()):
        console.print(f"  {path / 'report.html' if path.is_dir() else path}")


def figures_table(console: Console, figures: dict[str, Scores], as_json: bool) -> None:
    """Figures computed anew."""
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
    overall = {n: over_sites([scores[n] for scores in figures.values()]) for n in names}
    table.add_row("mean over sites", *(per_cent(o["mean"]) for o in overall.values()), str(overall[names[0]]["n"]))
    console.print(table)
