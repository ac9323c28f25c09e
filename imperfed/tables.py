"""Results on a console: fractions become per cent here and nowhere else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imperfed.algorithms import find
from imperfed.compare import Line
from imperfed.evaluate import VALIDATION, Scores
from imperfed.folder import Record
from imperfed.listing import about
from imperfed.products import figure, over_sites


def per_cent(fraction: float | None) -> str:
    """A fraction as it stands in a table."""
    return "" if fraction is None else f"{100 * fraction:.2f}"


def run_table(console: Console, summary: Record, folder: Path) -> None:
    """A finished run, site by site, and the paths of what it wrote."""
    labels = summary["labels"]
    if not summary["personal"]["n"] and summary["global"]:  # sites without test sets, of which there may be thousands
        rows = sum(row["train"] for row in summary["sites"])
        title = f"{summary['method']} on {summary['data']}, {summary['rounds']} rounds"
        console.print(f"{title}: {len(summary['sites'])} sites, {rows} training rows")
    else:
        sites_table(console, summary)
    for name, one in summary["global"].items():
        where = "validation rows" if name.startswith(VALIDATION) else "common test set"
        value = f"{name.removeprefix(VALIDATION)} {per_cent(one['value'])} %"
        console.print(f"global model, {where}: {value} (n = {one['n']})")
    if labels and labels["accuracy"] is not None:
        console.print(
            f"labels resolved correctly: {per_cent(labels['accuracy'])} % of {labels['n']}; "
            f"picking a candidate at random: {per_cent(labels['picking at random'])} %"
        )
    console.print(f"{summary['seconds']:.1f} s. Written:")
    written(console, folder)


def sites_table(console: Console, summary: Record) -> None:
    """The figures of the sites."""
    metric, labels = summary["metric"], summary["labels"]
    table = Table(title=f"{summary['method']} on {summary['data']}, {summary['rounds']} rounds", title_justify="left")
    for name in ("site", "training rows", "test rows", f"{metric}, %") + (("labels resolved, %",) if labels else ()):
        table.add_column(name, justify="left" if name == "site" else "right")
    for row in summary["sites"]:
        cells = [row["site"], str(row["train"]), str(row["test"]), per_cent(row[metric])]
        table.add_row(*cells, *([per_cent(row["labels"])] if labels else []))
    personal = summary["personal"]
    mean = [
        "mean over sites",
        str(sum(r["train"] for r in summary["sites"])),
        str(personal["n"]),
        per_cent(personal["mean"]),
    ]
    table.add_section()
    table.add_row(*mean, *([per_cent(labels["accuracy"])] if labels else []))
    console.print(table)


def written(console: Console, folder: Path) -> None:
    """The paths of a run's products that a user looks for first."""
    for name in ("report.html", "summary.json", "metrics.jsonl", "models", "labels"):
        if (folder / name).exists():
            console.print(f"  {folder / name}")


def compare_table(console: Console, lines: Sequence[Line], seeds: Sequence[int], folder: Path) -> None:
    """Methods side by side, best in bold, what each of them is, and the paths of what was written."""
    best = max(line.mean for line in lines)
    columns = {"method": [line.method for line in lines], "test, %": [per_cent(line.mean) for line in lines]}
    if len(seeds) > 1:
        columns["±"] = [per_cent(line.spread) for line in lines]
    if any(line.paper for line in lines):
        columns["paper, %"] = [f"{line.paper:.2f}" if line.paper else "" for line in lines]
    if any(line.labels for line in lines):
        columns["labels resolved, %"] = [per_cent(statistics.fmean(x.labels)) if x.labels else "" for x in lines]
    columns["s a run"] = [f"{line.seconds:.1f}" for line in lines]
    table = Table(title=f"{lines[0].over}, {len(seeds)} seed{'s' * (len(seeds) > 1)}", title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right")
    for line, *cells in zip(lines, *columns.values(), strict=True):
        table.add_row(*cells, style="bold" if line.mean == best else None)
    console.print(table)
    for part in dict.fromkeys(part for line in lines for part in line.method.split("+")):
        console.print(f"{part}: {about(find(part))}")
    console.print("Written:")
    for path in sorted(folder.iterdir()):
        console.print(f"  {path / 'report.html' if path.is_dir() else path}")


def figures_table(console: Console, figures: dict[str, Scores], as_json: bool) -> None:
    """Figures computed anew."""
    if as_json:
        print(json.dumps({s: {m: {"value": figure(v), "n": n} for m, (v, n) in f.items()} for s, f in figures.items()}))
        return
    table = Table()
    names = list(next(iter(figures.values())))
    for name in ("site", *(f"{n}, %" for n in names), "n"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for site, scores in figures.items():
        table.add_row(site, *(per_cent(figure(scores[n][0])) for n in names), str(scores[names[0]][1]))
    table.add_section()
    overall = {n: over_sites([scores[n] for scores in figures.values()]) for n in names}
    table.add_row("mean over sites", *(per_cent(o["mean"]) for o in overall.values()), str(overall[names[0]]["n"]))
    console.print(table)
