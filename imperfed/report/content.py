"""The content of the report, in the form the page template expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from imperfed.data.files.declaration import called
from imperfed.report import auto_section as auto
from imperfed.report import missing_section as missing
from imperfed.report import prediction_section as predictions
from imperfed.report import repair_section as repair
from imperfed.report import sections
from imperfed.report import validation_section as validation
from imperfed.report.defence_section import suspicions
from imperfed.report.fairness_section import fairness
from imperfed.report.leak_section import reconstruction
from imperfed.report.privacy_section import privacy
from imperfed.report.run_files import Event, RunFiles
from imperfed.report.sections import Picture
from imperfed.report.words import MEANINGS, amount, count, in_rounds, many, named, per_cent, product
from imperfed.results.label_summary import FilledLabels
from imperfed.results.many_sites import listed_of, which_of

FOLDED = 30  # number of sites above which their table is folded
EVENTS = 20  # number of events listed
ALWAYS = ("What left the sites", "Failures and notes", "Settings and environment")
"""The headings with which every report ends."""


@dataclass(frozen=True)
class Tile:
    """A figure of the headline."""

    name: str
    value: str
    note: str


def content(run: RunFiles) -> dict[str, Any]:
    """Return everything that the page shows, in order."""
    own = (missing.missing_labels(run), repair.section(run), fairness(run), suspicions(run), privacy(run))
    later = (
        auto.section(run),
        predictions.by_class(run),
        predictions.calibration(run),
        validation.section(run),
        sections.candidate_sets(run),
        *own,
        sections.confidence(run),
        sections.data(run),
        reconstruction(run),
    )
    learning, shown = sections.learning(run), [section for section in later if section]
    return {
        "contents": contents([learning, *shown], bool(run.sites)),
        "title": title(run),
        "about": about(run),
        "unfinished": "" if run.summary else f"not finished: round {run.round} of {run.config.rounds.rounds}",
        "brought": run.summary.auto.sentence() if run.summary and run.summary.auto else "",
        "tiles": tiles(run),
        "label_sentence": label_sentence(run),
        "learning": learning,
        "metric": named(run.metric),
        "sites": (listed := listed_of(run.sites)),
        "tested": any(row.test or row.value is not None for row in run.sites),
        "folded": which_of(len(listed), len(run.sites)) if len(run.sites) > FOLDED else "",
        "spread": spread(run),
        "resolved": resolved(run),
        "sections": shown,
        "traffic": traffic(run),
        "sent": [(name, MEANINGS.get(name, ""), product(shape)) for name, shape in run.sent.items()],
        "events": [(text, in_rounds(rounds)) for text, rounds in run.events[:EVENTS]],
        "further_events": further(run.events),
        "settings": run.settings,
        "environment": run.environment,
        "seconds": run.summary.seconds if run.summary else None,
        "per_cent": per_cent,
        "count": count,
    }


def title(run: RunFiles) -> str:
    """Return the heading of the page: which method was run on which data."""
    settings, summary = run.config.run, run.summary
    if summary is None:
        return f"{settings.method} on {called(settings.data)}"
    if summary.auto and summary.auto.alone_only:
        return f"auto: models of single sites on {summary.data}"
    return f"{f'auto: {summary.title}' if summary.auto else settings.method} on {summary.data}"


def contents(shown: Sequence[sections.Section], sites: bool) -> list[str]:
    """Return the headings of the page, in order."""
    first, *more = [section.title for section in shown]
    return [first, *(["Sites"] if sites else []), *more, *ALWAYS]


def label_sentence(run: RunFiles) -> str:
    """Describe the inferred labels in one sentence."""
    labels = run.summary.labels if run.summary else None
    return missing.filled_sentence(labels) if isinstance(labels, FilledLabels) else sections.label_sentence(run)


def resolved(run: RunFiles) -> str:
    """Return the heading of the sites' label figures; empty if there are none."""
    if all(row.labels is None for row in run.sites):
        return ""
    filled = run.summary and isinstance(run.summary.labels, FilledLabels)
    return "labels filled in, AUROC" if filled else "labels resolved"


def about(run: RunFiles) -> list[str]:
    """Describe the run in a few words each: objective, sites, rounds, seeds."""
    config = run.config
    own = config.method.objective.name if config.method.objective else ""
    objective = run.summary.objective if run.summary else config.run.objective or own
    return [
        *([f"objective {objective}"] if objective else []),
        many(len(run.sites) or config.split.sites, "site"),
        rounds(run),
        f"seed {config.run.seed}",
        f"seed of the data {config.run.data_seed}",
    ]


def rounds(run: RunFiles) -> str:
    """Say how many rounds there are, and how many were made if the run ended early."""
    planned = many(run.config.rounds.rounds, "round")
    return f"{run.summary.rounds} of {planned}" if run.summary and run.summary.early else planned


def tiles(run: RunFiles) -> list[Tile]:
    """Return the headline figures; none if nothing was measured."""
    overall, what = run.overall, named(run.metric)
    measured = [row for row in run.sites if row.value is not None]
    when = validation.when(run) if run.summary else f", after round {run.measured}"
    if not measured:
        return [common_tile(what, *run.common, when)] if run.common else []
    n = f"n = {count(overall.n)}"
    worst = min(measured, key=lambda row: row.value or 0.0)
    tiles = [
        Tile(
            f"{what}, mean over sites",
            per_cent(overall.mean),
            f"{n} test rows at {many(len(measured), 'site')}{when}",
        ),
        Tile("weighted by test rows", per_cent(overall.weighted), n),
        Tile("worst site", per_cent(overall.worst), f"{worst.site}, n = {count(worst.test)}"),
    ]
    if run.common:
        tiles.append(common_tile("global model", *run.common))
    if run.summary and (target := run.summary.target):
        rounds = "not reached" if target.round is None else count(target.round)
        spent = "" if target.seconds is None else f", {target.seconds:.1f} s of training"
        tiles.append(Tile(f"rounds to {100 * target.value:g} %", rounds, f"{target.of}{spent}"))
    return tiles


def common_tile(name: str, value: float, rows: int, when: str = "") -> Tile:
    """Return the tile with the figure of the global model."""
    return Tile(name, per_cent(value), f"common test set, n = {count(rows)}{when}")


def spread(run: RunFiles) -> Picture | None:
    """Draw how the figure varies between sites, if they are too many for an open table."""
    values = [row.value for row in run.sites if row.value is not None]
    if len(values) <= FOLDED:
        return None
    what = named(run.metric)
    svg = sections.shares("spread", f"number of sites by {what}", values, f"{what}, %", "sites")
    return Picture(svg, f"Test {what} of {many(len(values), 'site')}.")


def traffic(run: RunFiles) -> list[str]:
    """Describe the traffic between sites and server in sentences."""
    up, down = (
        [value for sites in run.history.get(f"bytes/{way}", {}).values() for value, _ in sites.values()]
        for way in ("up", "down")
    )
    if not any(up) and not any(down):
        return ["The coordinator counts the bytes." if run.sent else "Nothing left the sites."]
    rounds = max(len(up), 1)
    sentences = [
        f"Up from the sites: {amount(sum(up))} in {many(rounds, 'round')}, {amount(sum(up) / rounds)} per round. "
        f"Down to them: {amount(sum(down))}, {amount(sum(down) / rounds)} per round."
    ]
    trained = {site for sites in run.history.get("train/loss", {}).values() for site in sites}
    if not trained <= {"*", *(row.site for row in run.sites)}:
        sentences.append(
            "The sites' rows were pooled for training, which only a reference method may do; they are not counted."
        )
    return sentences


def further(events: Sequence[Event]) -> str:
    """Say how many entries of the log are not listed."""
    more = len(events) - EVENTS
    return f"and {many(more, 'further entry', 'further entries')} in log.txt" if more > 0 else ""
