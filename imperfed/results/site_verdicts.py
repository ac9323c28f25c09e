"""A defence's verdicts on the sites: as metrics per round, as a table, and as the sites excluded at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from imperfed.core.context import SiteVerdict
from imperfed.results.defence_summary import DefenceSummary, LeftOut
from imperfed.results.folder import Record, RunFolder

SCORE, CONFIDENCE, OUT = "defence/score", "defence/confidence", "defence/out"


def figures(verdicts: Iterable[SiteVerdict], sites: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Yield site, metric and value of a round's verdicts; an undefined score has no line.

    The metric names the defence that judged where a run has several.
    """
    for verdict in verdicts:
        site, by = sites[verdict.site], f"/{verdict.by}" if verdict.by else ""
        if verdict.score is not None:
            yield site, SCORE + by, verdict.score
        yield site, CONFIDENCE + by, verdict.confidence
        yield site, OUT + by, float(verdict.out)


def write_verdicts(folder: RunFolder, adversaries: Sequence[str] | None, defence: str) -> DefenceSummary | None:
    """Write `suspicions.parquet` and return who is excluded at the end; None if no defence judged single sites."""
    columns = table(folder.records(), defence)
    if columns["site"]:
        folder.save_table("suspicions.parquet", columns)
    return summarise(columns, adversaries)


def judges(metrics: Iterable[str]) -> list[str]:
    """Return the names of the defences that judged, from the names of metrics; an empty one where there is one."""
    return [metric.removeprefix(OUT).removeprefix("/") for metric in metrics if metric.startswith(OUT)]


def metric_of(metric: str, judge: str) -> str:
    """Return the name of a metric of this judge."""
    return f"{metric}/{judge}" if judge else metric


def table(records: Iterable[Record], defence: str) -> dict[str, list[Any]]:
    """Return the columns of `suspicions.parquet`, one row per round, site and judge, from lines of `metrics.jsonl`.

    `defence`: the one that judged where the metrics name none.
    """
    verdicts: dict[tuple[int, str, str], dict[str, float]] = {}
    for r in records:
        section, _, metric = r["metric"].partition("/")
        if section == "defence":
            what, _, by = metric.partition("/")
            verdicts.setdefault((r["round"], r["site"], by or defence), {})[what] = r["value"]
    return {
        "round": [round for round, _, _ in verdicts],
        "site": [site for _, site, _ in verdicts],
        "by": [by for _, _, by in verdicts],
        "score": [values.get("score") for values in verdicts.values()],
        "confidence": [values["confidence"] for values in verdicts.values()],
        "out": [values["out"] > 0 for values in verdicts.values()],
    }


def summarise(columns: dict[str, list[Any]], adversaries: Sequence[str] | None) -> DefenceSummary | None:
    """Return who is excluded at the end and since when, and how correct that is if the adversaries are known."""
    courses: dict[str, dict[int, list[Verdict]]] = {}
    for round, site, *verdict in zip(*columns.values(), strict=True):
        courses.setdefault(site, {}).setdefault(round, []).append(Verdict(*verdict))
    if not courses:
        return None
    several = len(set(columns["by"])) > 1
    out = [one for site, course in courses.items() if (one := left_out(site, course, several)) is not None]
    accused, guilty = {one.site for one in out}, set(adversaries or ())
    return DefenceSummary(
        out=tuple(sorted(out, key=lambda one: (one.since, one.site))),
        ever_out=tuple(site for site, course in courses.items() if any(v.out for one in course.values() for v in one)),
        false_alarms=None if adversaries is None else tuple(sorted(accused - guilty)),
        missed=None if adversaries is None else tuple(sorted(guilty - accused)),
    )


class Verdict(NamedTuple):
    """One row of `suspicions.parquet` about a site in a round."""

    by: str
    score: float | None
    confidence: float
    out: bool


def left_out(site: str, course: dict[int, list[Verdict]], several: bool) -> LeftOut | None:
    """Return since when, and by whom, a site is excluded at the end; None if it is not.

    Where several defences exclude it, the score and the confidence are those of the one that trusts it least.
    """
    rounds = [(round, any(verdict.out for verdict in verdicts)) for round, verdicts in course.items()]
    last_in = max((i for i, (_, excluded) in enumerate(rounds) if not excluded), default=-1)
    if last_in + 1 == len(rounds):
        return None
    against = [verdict for verdict in course[rounds[-1][0]] if verdict.out]
    worst = min(against, key=lambda verdict: verdict.confidence)
    by = " and ".join(verdict.by for verdict in against) if several else ""
    return LeftOut(site, rounds[last_in + 1][0], worst.score, worst.confidence, by)


def sentences(summary: DefenceSummary) -> list[str]:
    """Return the summary in sentences."""
    out = [f"{one.site} (since round {one.since}{f', by {one.by}' if one.by else ''})" for one in summary.out]
    accused = {one.site for one in summary.out}
    back = [site for site in summary.ever_out if site not in accused]
    lines = [f"left out by the defence: {', '.join(out) or 'nobody'}"]
    if back:
        lines.append(f"left out for a time: {', '.join(back)}")
    if summary.false_alarms is not None and summary.missed is not None:
        alarms, missed = (", ".join(sites) or "none" for sites in (summary.false_alarms, summary.missed))
        lines.append(f"the adversaries are known here: false alarms {alarms}; missed {missed}")
    return lines
