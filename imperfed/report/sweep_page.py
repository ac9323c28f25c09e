"""The page about a sweep, `report.html`, made from its results: what was tried, what was chosen, how that did."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError
from imperfed.report import plots, rendered
from imperfed.report.compared_runs import RESULTS, RUNS
from imperfed.report.comparison_page import PAGE, ends, interval_in_words, points, ranged
from imperfed.report.content import Tile
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.series_plots import ranges, several_curves
from imperfed.report.words import amount, many, named, per_cent
from imperfed.results.damaged_files import parse_file

DRAWN = 20
"""Most combinations that are drawn; the table has all."""
FOLDED = 40
Results = Mapping[str, Any]


def write_sweep_page(folder: Path) -> Path:
    """Write the page into the folder of a sweep; return its path."""
    if not (folder / RESULTS).is_file():
        raise UsageError(f"{folder}: this sweep has not ended; imperfed resume {folder}")
    results = parse_file(folder / RESULTS, json.loads, "sweep again")
    runs = parse_file(folder / RUNS, json.loads, "sweep again")
    page = rendered("imperfed.report", "many_runs.html", sweep_content(results, runs))
    return write_whole(folder / PAGE, lambda path: path.write_text(page, encoding="utf-8"))


def sweep_content(results: Results, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return everything that the page shows, in order."""
    ranked = best_first(results["cells"])
    shown = [tried(results, ranked), effects(results), courses(results, ranked), tests(results), notes(results, runs)]
    sections = [section for section in shown if section is not None]
    figures = dict(zip(results["chosen"]["seeds"], results["chosen"]["values"], strict=True))
    pages = [(f"seed {r['seed']}", per_cent(figures.get(r["seed"])), f"{r['folder']}/{PAGE}") for r in runs]
    trials = len(ranked) * len(results["seeds"])
    return {
        "title": f"{results['method']} on {results['data']}: {many(len(ranked), 'combination')}",
        "about": [
            many(trials, "trial"),
            f"{'seed' if len(results['seeds']) == 1 else 'seeds'} {', '.join(map(str, results['seeds']))}",
            f"chosen by {per_cent(results['held_out'])} of each site's rows, which it holds out",
        ],
        "contents": [*(section.title for section in sections), "Runs"],
        "sentences": [f"Chosen: {in_words(results['chosen']['settings'])}."],
        "tiles": tiles(results, ranked),
        "sections": sections,
        "runs": [(f"{results['method']} {in_words(results['chosen']['settings'])}", pages)],
        "command": "imperfed report",
    }


def best_first(cells: Sequence[Results]) -> list[Results]:
    """Return combinations by their mean score, which may be negative; last those with a trial that failed."""
    return sorted(cells, key=lambda cell: math.inf if cell["mean"] is None else -cell["mean"])


def in_words(settings: Mapping[str, str]) -> str:
    """Return the settings of a combination as they are typed."""
    return " ".join(f"{key}={value}" for key, value in settings.items())


def tiles(results: Results, ranked: Sequence[Results]) -> list[Tile]:
    """Return the headline: the chosen settings on rows held out and on test rows, and how far the next are away."""
    chosen, best = results["chosen"], ranked[0]
    shown = [Tile(f"{named(results['figure'])} on rows held out", per_cent(best["mean"]), "by which it was chosen")]
    if chosen["values"]:
        note = interval_in_words(chosen["interval"]) or many(len(chosen["values"]), "seed")
        shown.append(Tile(f"test {named(chosen['figure'])}", per_cent(fmean(chosen["values"])), note))
    if len(ranked) > 1 and ranked[1]["difference"]:
        shown.append(Tile("the next combination", points(ranked[1]["difference"]["mean"]), verdict(ranked[1])))
    return shown


def verdict(cell: Results) -> str:
    """Return what the difference of a combination from the chosen one means."""
    found = cell["difference"]
    if found is None:
        return ""
    return "one seed: no test of the difference" if found["p"] is None else str(found["sentence"])


def tried(results: Results, ranked: Sequence[Results]) -> Section:
    """Show all combinations, the best first."""
    keys, several = list(results["grid"]), len(results["seeds"]) > 1
    spread = ("\N{PLUS-MINUS SIGN} over seeds",) if several else ()
    columns = ("number", *keys, named(results["figure"]), *spread, "best round", "against the chosen", "95 % interval")
    more = ("what it means", "seconds", "up, all sites")
    rows = [row(number, cell, several) for number, cell in enumerate(ranked, 1)]
    last = len(columns)
    table = ShownTable("Table of combinations", (*columns, *more), rows, folded(rows), said=(last,), best=0)
    text = (
        "Every combination was trained with every seed and judged by the labels that the sites hold out, as they are "
        "given; differences are judged by Student's t over the seeds, after Holm's correction for their number. Test "
        "rows were not looked at for any but the chosen one. The chosen one was picked by this score, so "
        "that its score here is likely too high. Its test figure is not."
    )
    return Section("Combinations", text, [drawn(results, ranked)], tables=[table])


def folded(rows: Sequence[object]) -> str:
    """Return what stands in place of a long table."""
    return f"All {len(rows)} combinations" if len(rows) > FOLDED else ""


def row(number: int, cell: Results, several: bool) -> list[str]:
    """Return the cells of a combination."""
    trials = cell["trials"]
    scores = [trial["score"] for trial in trials if trial["score"] is not None]
    found, failure = cell["difference"], next((trial["failure"] for trial in trials if trial["failure"]), "")
    spread = [f"{100 * stdev(scores):.2f}" if len(scores) > 1 else ""] if several else []
    return [
        str(number),
        *cell["settings"].values(),
        per_cent(cell["mean"]),
        *spread,
        ", ".join(str(trial["round"]) for trial in trials),
        points(found["mean"]) if found else "",
        ends(found) if found else "",
        f"failed: {failure}" if failure else verdict(cell) or ("chosen" if number == 1 else ""),
        f"{fmean(trial['seconds'] for trial in trials):.1f}",
        amount(fmean(trial["up"] for trial in trials)),
    ]


def drawn(results: Results, ranked: Sequence[Results]) -> Picture:
    """Draw the best combinations, seed by seed."""
    known = [cell for cell in ranked if cell["mean"] is not None][:DRAWN]
    rows = []
    for cell in known:
        scores = [trial["score"] for trial in cell["trials"] if trial["score"] is not None]
        rows.append(ranged(in_words(cell["settings"]), cell["mean"], None, scores))
    label = "; ".join(f"{row.name} {row.mean:.1f}" for row in rows)
    what = named(results["figure"])
    svg = ranges("combinations", f"{what} on rows held out in per cent: {label}", rows, f"{what} on rows held out, %")
    return Picture(svg, f"Mean (blue) and every seed (grey){'' if len(known) == len(ranked) else ', the best ones'}.")


def effects(results: Results) -> Section | None:
    """Show the mean score for each value of each setting, over all else."""
    grid = {key: values for key, values in results["grid"].items() if len(values) > 1}
    if len(grid) < 2:
        return None
    rows = []
    for key, values in grid.items():
        for value in values:
            known = [c["mean"] for c in results["cells"] if c["settings"][key] == value and c["mean"] is not None]
            best = per_cent(max(known)) if known else ""
            rows.append([f"{key}={value}", per_cent(fmean(known)) if known else "", best, str(len(known))])
    columns = ("value", "mean over all else", "best with it", "combinations")
    text = "A setting whose best values lie at an end of the grid may be better still beyond it."
    return Section("One setting at a time", text, tables=[ShownTable("Table of settings", columns, rows)])


def courses(results: Results, ranked: Sequence[Results]) -> Section | None:
    """Draw the scores over the rounds."""
    curves = {}
    for cell in ranked[: len(plots.SERIES)]:
        by_round: dict[int, list[float]] = {}
        for trial in cell["trials"]:
            for round, score in trial["curve"]:
                by_round.setdefault(round, []).append(100 * score)
        if by_round:
            curves[in_words(cell["settings"])] = {round: fmean(scores) for round, scores in by_round.items()}
    if not curves:
        return None
    what = f"{named(results['figure'])} on rows held out, %"
    label = "; ".join(f"{title} {curve[max(curve)]:.4g}" for title, curve in curves.items())
    svg = several_curves("courses", f"{what}, in the last round: {label}", curves, what)
    left_out = f" The best {len(curves)} of {len(ranked)}." if len(curves) < len(ranked) else ""
    return Section("Curves", "", [Picture(svg, f"Score by round, mean over the seeds.{left_out}")])


def tests(results: Results) -> Section:
    """Say how the chosen settings do on test rows."""
    chosen = results["chosen"]
    if not chosen["values"]:
        return Section("On test rows", "There are no test rows, or no run of the chosen settings ended.")
    values = ", ".join(
        f"{per_cent(value)} (seed {seed})" for seed, value in zip(chosen["seeds"], chosen["values"], strict=True)
    )
    interval = interval_in_words(chosen["interval"])
    mean = f"{per_cent(fmean(chosen['values']))}{f', {interval}' if interval else ''}"
    return Section("On test rows", f"The chosen settings, trained again: {named(chosen['figure'])} {mean}: {values}.")


def notes(results: Results, runs: Sequence[Mapping[str, Any]]) -> Section:
    """Return how to use the choice, and which of its runs diverged."""
    text = " ".join(f"Diverged: {reason}." for reason in results["chosen"]["diverged"])
    if runs:
        file = f"{runs[0]['folder']}/config.toml"
        text += (
            f" All settings of the choice are in {file}, in this folder. To train with them again: imperfed run with "
        )
        text += "the path of that file; with --set validation=0 as well, on the rows held out too."
    return Section("Notes", text.strip())
