"""The report section on a defence's verdicts about the sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from imperfed.report import plots
from imperfed.report.run_files import Course, RunFiles
from imperfed.report.sections import Picture, Section
from imperfed.results.site_verdicts import CONFIDENCE, OUT, SCORE, judges, metric_of, sentences

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


def suspicions(run: RunFiles) -> Section | None:
    """Describe which sites were left out, since when and why; None if no defence judged single sites."""
    if run.summary is None or (defence := run.summary.suspicions) is None:
        return None
    capitalised = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences(defence)]
    points = []
    for one in defence.out:
        score = "no score" if one.score is None else f"score {one.score:.3f}"
        by = f" by {one.by}" if one.by else ""
        points.append(f"{one.site}: out since round {one.since}{by}, {score}, confidence {one.confidence:.2f}")
    accused = {one.site for one in defence.out}
    pictures = [picture for judge in judges(run.history) for picture in courses(run, judge, accused)]
    text = f"{' '.join(capitalised)} At most {most_at_once(run)} sites were left out in one round."
    return Section("Suspicions", text, pictures, "Left out at the end" if points else "", points)


def courses(run: RunFiles, judge: str, accused: set[str]) -> Iterator[Picture]:
    """Yield pictures of the scores and confidences of one defence; its name is empty where the run has one."""
    by = f", by {judge}" if judge else ""
    for name, metric, caption in (
        ("scores", SCORE, f"Score against each site, smoothed over rounds{by}; dark: sites left out at the end."),
        ("trust", CONFIDENCE, f"The server's confidence in each site{by}; dark: sites left out at the end."),
    ):
        if course := run.history.get(metric_of(metric, judge), {}):
            yield Picture(lines(f"{name}{judge}", metric, course, accused), caption)


def most_at_once(run: RunFiles) -> int:
    """Return the largest number of sites that were left out in one round, by any defence."""
    out: dict[int, set[str]] = {}
    for judge in judges(run.history):
        for round, sites in run.history[metric_of(OUT, judge)].items():
            out.setdefault(round, set()).update(site for site, (value, _) in sites.items() if value)
    return max(map(len, out.values()))


def lines(name: str, metric: str, course: Course, accused: set[str]) -> Markup:
    """Draw one line per site, with those of the accused sites on top."""
    what = metric.removeprefix("defence/")
    sites = sorted({site for values in course.values() for site in values}, key=lambda site: (site in accused, site))

    def draw(ax: Axes) -> None:
        for site in sites:
            rounds = [r for r in sorted(course) if site in course[r]]
            colour, width = (plots.ACCENT, 1.6) if site in accused else (plots.QUIET, 0.8)
            ax.plot(rounds, [course[r][site][0] for r in rounds], color=colour, linewidth=width)
        ax.set(xlabel="round", ylabel=what)
        ax.margins(x=0.02)
        ax.locator_params(axis="x", integer=True)
        ax.grid(axis="y", color=plots.QUIET, alpha=0.2, linewidth=0.6)

    return plots.render(
        name, f"{what} of {len(sites)} sites by round, {len(accused)} of them left out at the end", 2.6, draw
    )
