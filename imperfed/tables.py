"""Results on a console: fractions become per cent here and nowhere else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imperfed.compare import Line
from imperfed.evaluate import Scores
from imperfed.folder import Record


def per_cent(fraction: float | None) -> str:
    """A fraction as it stands in a table."""
    return "" if fraction is None else f"{100 * fraction:.2f}"


def run_table(console: Console, summary: Record, folder: Path) -> None:
    """A finished run, site by site, and the paths of what it wrote."""
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
    for name, one in summary["global"].items():
        console.print(
            f"global model, common test set: {name} {per_cent(one['value'])} % (n = {one['n']})", highlight=False
        )
    if labels and labels["accuracy"] is not None:
        console.print(
            f"labels resolved correctly: {per_cent(labels['accuracy'])} % of {labels['n']}; "
            f"picking a candidate at random: {per_cent(labels['picking at random'])} %",
            highlight=False,
        )
    console.print(f"{summary['seconds']:.1f} s. Written:", highlight=False)
    written(console, folder)


def written(console: Console, folder: Path) -> None:
    """The paths of a run's products that a user looks for first."""
    for name in ("report.html", "summary.json", "metrics.jsonl", "models", "labels"):
        if (folder / name).exists():
            console.print(f"  {folder / name}", highlight=False)


def compare_table(console: Console, lines: Sequence[Line], seeds: Sequence[int], folder: Path) -> None:
    """Methods side by side, best in bold."""
    best = max(line.mean for line in lines)
    table = Table(title=f"mean over sites, {len(seeds)} seed{'s' * (len(seeds) > 1)}", title_justify="left")
    for name in ("method", "test, %", "±", "paper, %", "labels resolved, %", "s a run"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for line in lines:
        paper = f"{line.paper:.2f}" if line.paper is not None else ""
        labels = per_cent(statistics.fmean(line.labels)) if line.labels else ""
        spread = per_cent(line.spread) if len(seeds) > 1 else ""
        style = "bold" if line.mean == best else None
        table.add_row(line.method, per_cent(line.mean), spread, paper, labels, f"{line.seconds:.1f}", style=style)
    console.print(table)
    console.print("Written:", highlight=False)
    for path in sorted(folder.iterdir()):
        console.print(f"  {path}", highlight=False)


def figures_table(console: Console, figures: dict[str, Scores], as_json: bool) -> None:
    """Figures computed anew."""
    if as_json:
        print(json.dumps({site: {m: {"value": v, "n": n} for m, (v, n) in s.items()} for site, s in figures.items()}))
        return
    table = Table()
    names = list(next(iter(figures.values())))
    for name in ("site", *(f"{n}, %" for n in names), "n"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for site, scores in figures.items():
        table.add_row(site, *(per_cent(scores[n][0]) for n in names), str(scores[names[0]][1]))
    table.add_section()
    means = [per_cent(statistics.fmean(s[n][0] for s in figures.values())) for n in names]
    table.add_row("mean over sites", *means, str(sum(s[names[0]][1] for s in figures.values())))
    console.print(table)
