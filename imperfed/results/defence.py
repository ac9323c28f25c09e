"""A defence's verdicts on the sites: as metrics per round, as a table, and as the sites excluded at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from imperfed.core.context import SiteVerdict
from imperfed.results.folder import Record, RunFolder
from imperfed.results.summary import DefenceSummary, LeftOut

SCORE, CONFIDENCE, OUT = "defence/score", "defence/confidence", "defence/out"


def figures(verdicts: Iterable[SiteVerdict], sites: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Yield site, metric and value of a round's verdicts; an undefined score has no line."""
    for verdict in verdicts:
        if verdict.score is not None:
            yield sites[verdict.site], SCORE, verdict.score
        yield sites[verdict.site], CONFIDENCE, verdict.confidence
        yield sites[verdict.site], OUT, float(verdict.out)


def write_verdicts(folder: RunFolder, adversaries: Sequence[str] | None) -> DefenceSummary | None:
    """Write `suspicions.parquet` and return who is excluded at the end; None if no defence judged single sites."""
    columns = table(folder.records())
    if columns["site"]:
        folder.save_table("suspicions.parquet", columns)
    return summarise(columns, adversaries)


def table(records: Iterable[Record]) -> dict[str, list[Any]]:
    """Return the columns of `suspicions.parquet`, one row per round and site, from the lines of `metrics.jsonl`."""
    verdicts: dict[tuple[int, str], dict[str, float]] = {}
    for r in records:
        if r["metric"] in (SCORE, CONFIDENCE, OUT):
            verdicts.setdefault((r["round"], r["site"]), {})[r["metric"]] = r["value"]
    return {
        "round": [round for round, _ in verdicts],
        "site": [site for _, site in verdicts],
        "score": [values.get(SCORE) for values in verdicts.values()],
        "confidence": [values[CONFIDENCE] for values in verdicts.values()],
        "out": [values[OUT] > 0 for values in verdicts.values()],
    }


def summarise(columns: dict[str, list[Any]], adversaries: Sequence[str] | None) -> DefenceSummary | None:
    """Return who is excluded at the end and since when, and how correct that is if the adversaries are known."""
    courses: dict[str, list[tuple[int, float | None, float, bool]]] = {}
    for round, site, *rest in zip(*columns.values(), strict=True):
        courses.setdefault(site, []).append((round, *rest))
    if not courses:
        return None
    out = []
    for site, course in courses.items():
        last_in = max((i for i, (*_, left_out) in enumerate(course) if not left_out), default=-1)
        if last_in + 1 < len(course):
            _, score, confidence, _ = course[-1]
            out.append(LeftOut(site, course[last_in + 1][0], score, confidence))
    accused, guilty = {one.site for one in out}, set(adversaries or ())
    return DefenceSummary(
        out=tuple(sorted(out, key=lambda one: (one.since, one.site))),
        ever_out=tuple(site for site, course in courses.items() if any(left_out for *_, left_out in course)),
        false_alarms=None if adversaries is None else tuple(sorted(accused - guilty)),
        missed=None if adversaries is None else tuple(sorted(guilty - accused)),
    )


def sentences(summary: DefenceSummary) -> list[str]:
    """Return the summary in sentences."""
    out = [f"{one.site} (since round {one.since})" for one in summary.out]
    accused = {one.site for one in summary.out}
    back = [site for site in summary.ever_out if site not in accused]
    lines = [f"left out by the defence: {', '.join(out) or 'nobody'}"]
    if back:
        lines.append(f"left out for a time: {', '.join(back)}")
    if summary.false_alarms is not None and summary.missed is not None:
        alarms, missed = (", ".join(sites) or "none" for sites in (summary.false_alarms, summary.missed))
        lines.append(f"the adversaries are known here: false alarms {alarms}; missed {missed}")
    return lines
