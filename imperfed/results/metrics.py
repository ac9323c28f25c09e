"""The lines that a round adds to `metrics.jsonl` and to `log.txt`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.fairness import FAIR, course
from imperfed.results import site_verdicts
from imperfed.results.folder import Record
from imperfed.results.many_sites import MANY

VALIDATION = "validation/"
"""Prefix of the scores on rows that the sites hold out; their n is the weight, rounded."""
EPSILON = "privacy/epsilon"
"""What a site's updates up to a round have cost of its privacy."""
SENT = "sent/"
"""Prefix of metrics that count the numbers sent under one name by each site in a round."""


def metrics(
    report: RoundReport, trained: Sequence[str], evaluated: Sequence[str], one_test: bool = False, figure: str = ""
) -> list[Record]:
    """Return a round's lines of `metrics.jsonl`: round x site x metric; site "*" for figures of no particular site.

    Of very many training losses only the mean is written.
    `one_test`: whether all sites are evaluated on the same test rows. `figure`: what the score on rows held out is.
    """
    lines: list[Record] = []

    def add(site: str, metric: str, value: float, **more: Any) -> None:
        if math.isfinite(value):  # an undefined figure, such as one over no examples, has no line
            lines.append({"round": report.round + 1, "site": site, "metric": metric, "value": value, **more})

    if len(report.losses) > MANY:
        add("*", "train/loss", fmean(report.losses.values()), n=len(report.losses))
    else:
        for k, loss in report.losses.items():
            add(trained[k], "train/loss", loss)
    for k, scores in report.personal.items():
        for metric, (value, n) in scores.items():
            if not metric.startswith(FAIR):
                add(evaluated[k], f"test/personal/{metric}", value, n=n)
    for metric, (value, n) in course(list(report.personal.values()), one_test).items():
        add("*", metric, value, n=n)
    for metric, (value, n) in report.common.items():
        add("*", f"test/global/{metric}", value, n=n)
    for k, (score, weight) in report.validity.items():
        add(trained[k], f"{VALIDATION}{figure}", score, n=round(weight))
    add("*", f"{VALIDATION}{figure}", report.validation.score, n=round(report.validation.weight))
    for site, metric, value in site_verdicts.figures(report.verdicts, trained):
        add(site, metric, value)
    for k, epsilon in report.epsilons.items():
        add(trained[k], EPSILON, epsilon)
    add("*", "bytes/down", report.down)
    add("*", "bytes/up", report.up)
    for name, shape in report.sent.items():
        add("*", f"{SENT}{name}", math.prod(shape), shape=shape)
    return lines


def sent(records: Iterable[Record]) -> dict[str, tuple[int, ...]]:
    """Return name and shape of everything that left a site; read from `metrics.jsonl`, which survives a resume."""
    return {r["metric"].removeprefix(SENT): tuple(r["shape"]) for r in records if r["metric"].startswith(SENT)}


def log_lines(report: RoundReport, trained: Sequence[str]) -> list[str]:
    """Return a round's lines of `log.txt`."""
    head = f"round {report.round + 1}:"
    answered = f"{len(report.who) - len(report.failures)} of {len(report.who)} sites answered"
    lines = [f"{head} {answered}, {report.course(digits=4)}"]
    if report.validation.known:
        lines[0] += f", validation {100 * report.validation.score:.2f} % (best: round {report.best})"
    lines += [f"{head} {trained[k]} failed: {failure.reason}" for k, failure in report.failures.items()]
    return lines + [f"{head} {note}" for note in report.notes]
