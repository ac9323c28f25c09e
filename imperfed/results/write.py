"""What a run gives back: metrics round by round, a model a site, the labels it worked out, a summary."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.labels import Annotated, Candidates
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.engine import Engine
from imperfed.engine.schedule import RoundReport
from imperfed.evaluation.evaluator import Evaluator, Scores, figure
from imperfed.evaluation.fairness import FAIR, course
from imperfed.results import defence as suspicions
from imperfed.results.folder import Record, RunFolder
from imperfed.results.missing import apart, areas, by_class, write_filled_labels

SENT = "sent/"
"""Metrics of this prefix count the numbers of one name that each site sent in a round."""


def metrics(
    report: RoundReport, trained: Sequence[str], evaluated: Sequence[str], one_test: bool = False
) -> list[Record]:
    """A round's lines of `metrics.jsonl`: round x site x metric, "*" where a figure is of no site in particular.

    `one_test`: whether all sites are measured on the same test rows.
    """
    lines: list[Record] = []

    def add(site: str, metric: str, value: float, **more: Any) -> None:
        if math.isfinite(value):  # a figure that does not exist, such as one of no examples, has no line
            lines.append({"round": report.round + 1, "site": site, "metric": metric, "value": value, **more})

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
    for site, metric, value in suspicions.figures(report.verdicts, trained):
        add(site, metric, value)
    add("*", "bytes/down", report.down)
    add("*", "bytes/up", report.up)
    for name, shape in report.sent.items():
        add("*", f"{SENT}{name}", math.prod(shape), shape=shape)
    return lines


def sent(records: Iterable[Record]) -> dict[str, list[int]]:
    """Name and shape of all that left a site, from the lines of `metrics.jsonl`; so a resumed run knows it as well."""
    return {r["metric"].removeprefix(SENT): r["shape"] for r in records if r["metric"].startswith(SENT)}


def log_lines(report: RoundReport, trained: Sequence[str]) -> list[str]:
    """A round's lines of `log.txt`."""
    head = f"round {report.round + 1}:"
    loss = sum(report.losses.values()) / max(len(report.losses), 1)
    lines = [f"{head} {len(report.who) - len(report.failures)} of {len(report.who)} sites answered, loss {loss:.4f}"]
    lines += [f"{head} {trained[k]} failed: {failure.reason}" for k, failure in report.failures.items()]
    return lines + [f"{head} {note}" for note in report.notes]


def write_models(folder: RunFolder, engine: Engine, data: FederatedData) -> None:
    """`models/global.safetensors` with all that is shared, and a whole model a site where sites have their own."""
    if len(data.scale.mean):
        folder.save_model("scale", {"mean": data.scale.mean, "spread": data.scale.spread})
    if shared := engine.shared_model():
        folder.save_model("global", shared)
    if engine.personalised and not data.federation.elsewhere:
        for k, name in enumerate(data.federation.sites):
            folder.save_model(name, engine.model(k))


def write_labels(folder: RunFolder, belief: Tensor | None, data: FederatedData, evaluator: Evaluator) -> Record:
    """`labels/<site>.parquet`, and how many of the labels worked out are right where that is known."""
    federation = data.federation
    if belief is not None and isinstance(federation.labels, Annotated):
        return write_filled_labels(folder, belief, federation, evaluator)
    if belief is None or not isinstance(federation.labels, Candidates):
        return {}
    confidence, suggested = belief.max(1)
    shares = []
    for k, site in enumerate(federation.sites):
        a, b = federation.starts[k], federation.starts[k + 1]
        folder.save_table(f"labels/{site}.parquet", label_table(federation, a, b, suggested, confidence))
        shares.append(evaluator.labels(a, b, suggested[a:b]))
    return {
        "accuracy": evaluator.labels(0, len(suggested), suggested),
        "picking at random": float((1.0 / federation.labels.values.sum(1)).mean()),
        "mean confidence": float(confidence.mean()),
        "n": len(suggested),
        "sites": shares,
        "together": together(federation.labels).tolist(),
        "mistaken": evaluator.mistaken(suggested, len(federation.classes)),
    }


def label_table(federation: Federation, a: int, b: int, suggested: Tensor, confidence: Tensor) -> dict[str, list[Any]]:
    """The columns of a site's label file."""
    classes, sets = federation.classes, federation.labels.values[a:b]
    given = [[classes[j] for j, there in enumerate(row) if there] for row in sets.tolist()]
    return {
        "id": list(federation.ids[a:b]),
        "given": ["|".join(names) for names in given],
        "suggested": [classes[j] for j in suggested[a:b].tolist()],
        "confidence": confidence[a:b].tolist(),
        "reason": [f"best of {len(names)} candidates" if len(names) > 1 else "only candidate" for names in given],
    }


def write_verdicts(folder: RunFolder, adversaries: Sequence[str] | None) -> Record:
    """`suspicions.parquet` where a defence looked at single sites, and who is out in the end."""
    columns = suspicions.table(folder.records())
    if columns["site"]:
        folder.save_table("suspicions.parquet", columns)
    return suspicions.verdict(columns, adversaries)


def together(labels: Candidates) -> Tensor:
    """How often two classes stand in the same candidate set."""
    sets = labels.values.double()
    counts = (sets.T @ sets).long()
    return counts - counts.diag().diag()


def over_sites(scores: Sequence[tuple[float, int]]) -> Record:
    """Plain mean over the sites that have a figure, mean weighted by examples, worst site, number of examples."""
    there = [(value, n) for value, n in scores if math.isfinite(value)]
    total = sum(n for _, n in there)
    if not there:
        return {"mean": None, "weighted": None, "worst": None, "n": 0}
    return {
        "mean": math.fsum(value for value, _ in there) / len(there),
        "weighted": math.fsum(value * n for value, n in there) / total,
        "worst": min(value for value, _ in there),
        "n": total,
    }


def headline(summary: Record) -> float | None:
    """The figure a run is compared by: the mean over sites, or that on the common test set where sites have none."""
    common = summary["global"].get(summary["metric"], {})
    own: float | None = summary["personal"]["mean"]
    return own if own is not None else common.get("value")


@dataclass(frozen=True)
class RunOutcome:
    """What is known at the end of a run, for its summary."""

    rounds: int
    personal: dict[int, Scores]
    common: Scores
    labels: Record
    """Of the labels worked out, as `write_labels` gives it."""
    areas: Tensor | None
    """The AUROC of every class at every site, where labels are missing."""
    account: dict[str, float] = field(default_factory=dict)


def summarise(folder: RunFolder, engine: Engine, data: FederatedData, evaluator: Evaluator, head: Record) -> Record:
    """Write models, labels and `summary.json`, and return the summary."""
    personal, common = engine.evaluate()
    labels = write_labels(folder, engine.inferred_labels(), data, evaluator)
    write_models(folder, engine, data)
    account = engine.population.spec.algorithm.figures(engine.state.servers[0])
    outcome = RunOutcome(engine.state.round, personal, common, labels, areas(engine, evaluator), account)
    return write_summary(folder, data, evaluator, head, outcome)


def write_summary(
    folder: RunFolder, data: FederatedData, evaluator: Evaluator, head: Record, outcome: RunOutcome
) -> Record:
    """`summary.json`."""
    federation, metric, personal = data.federation, evaluator.metric, outcome.personal
    shares = outcome.labels.pop("sites", [None] * len(federation.sites))
    nothing = {metric: (math.nan, 0)}  # of a site without a test set of its own
    own = [personal.get(k, nothing)[metric] for k in range(len(federation.sites))]
    table = [
        {"site": name, "train": rows, "test": n, metric: figure(value), "labels": share} | apart(personal.get(k, {}))
        for k, (name, rows, (value, n), share) in enumerate(
            zip(federation.sites, federation.sizes(), own, shares, strict=True)
        )
    ]
    summary = head | {
        "sent": sent(folder.records()),
        "rounds": outcome.rounds,
        "metric": metric,
        "personal": over_sites(own),
        "global": {name: {"value": figure(value), "n": n} for name, (value, n) in outcome.common.items()},
        "sites": table,
        "account": outcome.account,
        "input": list(federation.x.shape[1:]),
        "features": width(federation.x),
        "standardised": bool(len(data.scale.mean)),
        "classes": list(federation.classes),
        "by class": by_class(outcome.areas, federation, evaluator),
        "labels": outcome.labels,
        "suspicions": write_verdicts(folder, data.facts.get("adversaries")),
        "fairness": evaluator.fairness(list(personal.values()), head["seed"]),
        "facts": data.facts,
    }
    folder.write("summary.json", json.dumps(summary, indent=2, allow_nan=False))
    return summary
