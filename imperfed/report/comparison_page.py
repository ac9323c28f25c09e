"""The page about a comparison, `report.html`, made from its results and the folders of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.report import comparison_parts as parts
from imperfed.report import rendered
from imperfed.report.compared_runs import ComparedMethod, ComparedRuns
from imperfed.report.content import Tile
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.series_plots import Ranged, ranges
from imperfed.report.words import count, many, named, named_over_sites, per_cent
from imperfed.results.label_summary import FilledLabels
from imperfed.results.summary import Summary

PAGE = "report.html"


def write_comparison_page(folder: Path) -> Path:
    """Write the page into the folder of a comparison; return its path."""
    page = rendered("imperfed.report", "many_runs.html", content(ComparedRuns.read(folder)))
    return write_whole(folder / PAGE, lambda path: path.write_text(page, encoding="utf-8"))


def content(compared: ComparedRuns) -> dict[str, Any]:
    """Return everything that the page shows, in order."""
    shown = [
        methods(compared),
        differences(compared),
        *parts.sections_of(compared),
        notes(compared),
    ]
    sections = [section for section in shown if section is not None]
    brought = compared.results["brought"]
    return {
        "title": title(compared),
        "about": about(compared),
        "contents": [*(section.title for section in sections), "Runs"],
        "sentences": [brought["sentence"]] if brought else [],
        "tiles": tiles(compared),
        "sections": sections,
        "runs": list(runs(compared.methods)),
        "command": "imperfed report",
    }


def title(compared: ComparedRuns) -> str:
    """Return how many methods were compared on which data."""
    data = f" on {compared.summary.data}" if compared.summary else ""
    trained = [method for method in compared.methods if method.runs]  # all but what sites reach alone
    return f"{many(len(trained), 'method')}{data}"


def about(compared: ComparedRuns) -> list[str]:
    """Describe the comparison in a few words each."""
    seeds, summary = compared.results["seeds"], compared.summary
    said = [f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"]
    if summary is not None:
        said += [many(len(summary.sites), "site"), f"labels: {summary.facts.labels}"]
        rounds = {one.rounds for method in compared.methods for one in method.summaries}
        said.append(many(max(rounds), "round") if len(rounds) == 1 else f"{min(rounds)} to {max(rounds)} rounds")
    return said


def tiles(compared: ComparedRuns) -> list[Tile]:
    """Return the headline: the best method, the next one, and how many seeds this rests on."""
    ranked = [method for method in compared.methods if method.mean is not None]
    found = compared.results["differences"]
    shown = [Tile(f"highest: {method.title}", per_cent(method.mean), note(method)) for method in ranked[:1]]
    if found:
        closest = found[0]
        shown.append(Tile(f"closest: {closest['method']}", points(closest["mean"]), closest["sentence"]))
    return shown


def note(method: ComparedMethod) -> str:
    """Return the interval of a method's mean in words."""
    return interval_in_words(method.line["interval"]) or many(len(method.line["values"]), "seed")


def interval_in_words(interval: Mapping[str, Any] | None) -> str:
    """Return an interval and what it is over; empty if there is none."""
    if interval is None:
        return ""
    return f"{low_to_high(interval)}, 95 % over {count(interval['n'])} {interval['over']}"


def low_to_high(interval: Mapping[str, Any]) -> str:
    """Return the ends of an interval of a share."""
    low, high = within_shares(interval)
    return f"{100 * low:.2f} to {100 * high:.2f}"


def within_shares(interval: Mapping[str, Any]) -> tuple[float, float]:
    """Return the ends of an interval of a share, which no share is beyond: Student's t knows no limits."""
    return max(0.0, interval["low"]), min(1.0, interval["high"])


def points(difference: float) -> str:
    """Return a difference of shares in points."""
    return f"{100 * difference:+.2f}\N{NO-BREAK SPACE}points".replace("-", "\N{MINUS SIGN}")


def methods(compared: ComparedRuns) -> Section:
    """Show every method's figures, the best first."""
    rows = [method_row(method) for method in compared.methods]
    kept = [column for column in rows[0] if any(row[column] for row in rows)]
    over = named_over_sites(compared.results["figure"])
    table = ShownTable(
        "Table of methods",
        [over if column == "figure" else column for column in kept],
        [[row[column] for column in kept] for row in rows],
        caption=f"{over[:1].upper()}{over[1:]}, on test rows. 95 % intervals over seeds; over test rows for one seed.",
        best=0,
    )
    return Section("Methods", "", [drawn(compared)], tables=[table])


def method_row(method: ComparedMethod) -> dict[str, str]:
    """Return the cells of a method by column; empty where it has no such figure."""
    line, summaries = method.line, method.summaries
    filled = any(isinstance(summary.labels, FilledLabels) for summary in summaries)
    values, failed = line["values"], len(line["diverged"])
    worst = [s.personal.worst for s in summaries if s.personal.worst is not None]
    seconds = [s.seconds for s in summaries if s.seconds is not None]
    return {
        "method": method.title,
        "figure": mean_of(values),
        "\N{PLUS-MINUS SIGN} over seeds": f"{100 * stdev(values):.2f}" if len(values) > 1 else "",
        "interval": low_to_high(line["interval"]) if line["interval"] else "",
        "worst site": mean_of(worst),
        "global model": mean_of(line["global"]),
        "paper": per_cent(line["paper"] / 100) if line["paper"] is not None else "",
        "labels resolved": "" if filled else mean_of(line["labels"]),
        "labels filled in, AUROC": mean_of(line["labels"]) if filled else "",
        "diverged": f"{failed} of {failed + len(values)}" if failed else "",
        "seconds per run": f"{fmean(seconds):.1f}" if seconds else "",
    }


def mean_of(values: Sequence[float]) -> str:
    """Return the mean of shares in per cent; empty if there are none."""
    return per_cent(fmean(values)) if values else ""


def drawn(compared: ComparedRuns) -> Picture:
    """Draw the means with their intervals."""
    over = named_over_sites(compared.results["figure"])
    rows = [
        ranged(
            method.title,
            method.mean,
            method.line["interval"] and within_shares(method.line["interval"]),
            method.line["values"],
        )
        for method in compared.methods
        if method.mean is not None
    ]
    label = "; ".join(f"{row.name} {row.mean:.1f}" for row in rows)
    svg = ranges("methods", f"{over} in per cent: {label}", rows, f"{named(over)}, %")
    return Picture(svg, "Mean (blue), its 95 % interval (line) and every seed (grey).")


def ranged(name: str, mean: float, interval: tuple[float, float] | None, values: Sequence[float]) -> Ranged:
    """Return shares as they are drawn."""
    low, high = (None, None) if interval is None else (100 * end for end in interval)
    return Ranged(name, 100 * mean, low, high, [100 * value for value in values])


def differences(compared: ComparedRuns) -> Section | None:
    """Say how far every method is from the best one, and whether that means anything."""
    found = compared.results["differences"]
    if not found:
        return None
    best, seeds = found[0]["best"], max(len(one["seeds"]) for one in found)
    clear = [one["method"] for one in found if one["is_clear"]]
    text = f"Each method against {best}, which has the highest mean, on the same splits with the same seeds. "
    if seeds > 1:
        text += (
            "A difference is clear if Student's t over the seeds leaves less than 5 % to chance, after Holm's "
            "correction for the number of methods. "
        )
        text += "With so few seeds only large differences can be clear. " if seeds < 5 else ""
    text += f"Clearly worse: {', '.join(clear)}. " if clear else f"No method is clearly worse than {best}. "
    text += "The best method was picked after these runs, so its lead is likely to look larger than it is."
    rows = [[one["method"], points(one["mean"]), ends(one), better(one), one["sentence"]] for one in found]
    columns = (f"against {best}", "difference", "95 % interval", "seeds in which it is better", "what it means")
    table = ShownTable("Table of differences", columns, rows, said=(4,))
    return Section("Differences", text, [gaps(found, best)], tables=[table])


def ends(one: Mapping[str, Any]) -> str:
    """Return the interval of a difference in points."""
    if one["interval"] is None:
        return ""
    low, high = (f"{100 * one['interval'][end]:+.2f}".replace("-", "\N{MINUS SIGN}") for end in ("low", "high"))
    return f"{low} to {high}"


def better(one: Mapping[str, Any]) -> str:
    """Return in how many seeds a method was better."""
    return f"{sum(value > 0 for value in one['values'])} of {len(one['values'])}"


def gaps(found: Sequence[Mapping[str, Any]], best: str) -> Picture:
    """Draw the differences with their intervals, seed by seed."""
    intervals = [one["interval"] and (one["interval"]["low"], one["interval"]["high"]) for one in found]
    rows = [
        ranged(one["method"], one["mean"], interval, one["values"])
        for one, interval in zip(found, intervals, strict=True)
    ]
    label = "; ".join(f"{row.name} {row.mean:+.1f}" for row in rows)
    svg = ranges("gaps", f"differences from {best} in points: {label}", rows, "points", zero=best)
    return Picture(svg, f"Difference from {best}: mean (blue), 95 % interval (line), every seed (grey).")


def runs(compared: Sequence[ComparedMethod]) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield every method with its runs: the seed, its figure, and the page of the run beside this one."""
    for method in compared:
        if method.runs:
            yield (
                method.title,
                [(f"seed {run.seed}", figure_of(run.summary), f"{run.folder.path.name}/{PAGE}") for run in method.runs],
            )


def figure_of(summary: Summary | None) -> str:
    """Return the leading figure of a run."""
    return "diverged" if summary is None else per_cent(summary.headline)


def notes(compared: ComparedRuns) -> Section:
    """Return the sentences that explain the tables."""
    reasons = dict.fromkeys(reason for method in compared.methods for reason in method.line["diverged"])
    said = [*compared.results["notes"], *(f"Diverged: {reason}" for reason in reasons)]
    return Section("Notes", " ".join(said))
