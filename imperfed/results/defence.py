"""What a defence thought of the sites: as metrics round by round, as a table, and who is out in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from imperfed.core.context import SiteVerdict

SCORE, CONFIDENCE, OUT = "defence/score", "defence/confidence", "defence/out"

Record = dict[str, Any]


def figures(suspicions: Iterable[SiteVerdict], sites: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Site, metric and value of all that was thought in a round; a score that is undefined has no line."""
    for s in suspicions:
        if s.score is not None:
            yield sites[s.site], SCORE, s.score
        yield sites[s.site], CONFIDENCE, s.confidence
        yield sites[s.site], OUT, float(s.out)


def table(records: Iterable[Record]) -> dict[str, list[Any]]:
    """The columns of `suspicions.parquet`, from the lines of `metrics.jsonl`: a row a site and round."""
    seen: dict[tuple[int, str], dict[str, float]] = {}
    for r in records:
        if r["metric"] in (SCORE, CONFIDENCE, OUT):
            seen.setdefault((r["round"], r["site"]), {})[r["metric"]] = r["value"]
    return {
        "round": [round for round, _ in seen],
        "site": [site for _, site in seen],
        "score": [values.get(SCORE) for values in seen.values()],
        "confidence": [values[CONFIDENCE] for values in seen.values()],
        "out": [values[OUT] > 0 for values in seen.values()],
    }


def verdict(columns: dict[str, list[Any]], adversaries: Sequence[str] | None) -> Record:
    """Who is out in the end and since when; how right that is, where the adversaries are known. Empty: no defence."""
    courses: dict[str, list[tuple[int, float | None, float, bool]]] = {}
    for round, site, *rest in zip(*columns.values(), strict=True):
        courses.setdefault(site, []).append((round, *rest))
    if not courses:
        return {}
    out = []
    for site, course in courses.items():
        back = max((i for i, (*_, left_out) in enumerate(course) if not left_out), default=-1)
        if back + 1 < len(course):
            _, score, confidence, _ = course[-1]
            out.append({"site": site, "since": course[back + 1][0], "score": score, "confidence": confidence})
    found: Record = {
        "out": sorted(out, key=lambda line: (line["since"], line["site"])),
        "ever out": [site for site, course in courses.items() if any(left_out for *_, left_out in course)],
    }
    if adversaries is not None:
        accused = {line["site"] for line in out}
        found["false alarms"] = sorted(accused - set(adversaries))
        found["missed"] = sorted(set(adversaries) - accused)
    return found


def told(found: Record) -> list[str]:
    """The same in sentences."""
    if not found:
        return []
    out = [f"{line['site']} (since round {line['since']})" for line in found["out"]]
    back = [site for site in found["ever out"] if site not in {line["site"] for line in found["out"]}]
    sentences = [f"left out by the defence: {', '.join(out) if out else 'nobody'}"]
    if back:
        sentences.append(f"left out for a time: {', '.join(back)}")
    if "missed" in found:
        alarms, missed = (", ".join(found[name]) or "none" for name in ("false alarms", "missed"))
        sentences.append(f"the adversaries are known here: false alarms {alarms}; missed {missed}")
    return sentences
