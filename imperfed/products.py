"""What a run gives back: metrics round by round, a model a site, the labels it worked out, a summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from imperfed.core import Federation
from imperfed.data.federate import Scene
from imperfed.engine.rounds import Engine, Report
from imperfed.evaluate import Evaluator, Scores
from imperfed.folder import Record, RunFolder
from imperfed.labels import Candidates


def metrics(report: Report, trained: Sequence[str], evaluated: Sequence[str]) -> list[Record]:
    """A round's lines of `metrics.jsonl`: round x site x metric, "*" where a figure is of no site in particular."""
    lines: list[Record] = []

    def add(site: str, metric: str, value: float, **more: int) -> None:
        lines.append({"round": report.round + 1, "site": site, "metric": metric, "value": value, **more})

    for k, loss in report.losses.items():
        add(trained[k], "train/loss", loss)
    for k, scores in report.personal.items():
        for metric, (value, n) in scores.items():
            add(evaluated[k], f"test/personal/{metric}", value, n=n)
    for metric, (value, n) in report.common.items():
        add("*", f"test/global/{metric}", value, n=n)
    add("*", "bytes/down", report.down)
    add("*", "bytes/up", report.up)
    return lines


def log_lines(report: Report, trained: Sequence[str]) -> list[str]:
    """A round's lines of `log.txt`."""
    head = f"round {report.round + 1}:"
    loss = sum(report.losses.values()) / max(len(report.losses), 1)
    lines = [f"{head} {len(report.who) - len(report.failures)} of {len(report.who)} sites answered, loss {loss:.4f}"]
    lines += [f"{head} {trained[k]} failed: {why}" for k, why in report.failures.items()]
    return lines + [f"{head} {note}" for note in report.notes]


def write_models(folder: RunFolder, engine: Engine, sites: Sequence[str]) -> None:
    """`models/global.safetensors` with all that is shared, and a whole model a site where sites have their own."""
    if shared := engine.shared_model():
        folder.save_model("global", shared)
    if engine.personalised:
        for k, name in enumerate(sites):
            folder.save_model(name, engine.model(k))


def write_labels(folder: RunFolder, belief: Tensor | None, scene: Scene, judge: Evaluator) -> Record:
    """`labels/<site>.parquet`, and how many of the labels worked out are right where that is known."""
    federation = scene.federation
    if belief is None or not isinstance(federation.labels, Candidates):
        return {}
    confidence, suggested = belief.max(1)
    shares = []
    for k, site in enumerate(federation.sites):
        a, b = federation.starts[k], federation.starts[k + 1]
        folder.save_table(f"labels/{site}.parquet", label_table(federation, a, b, suggested, confidence))
        shares.append(judge.labels(a, b, suggested[a:b]))
    return {
        "accuracy": judge.labels(0, len(federation.x), suggested),
        "picking at random": float((1.0 / federation.labels.values.sum(1)).mean()),
        "mean confidence": float(confidence.mean()),
        "n": len(federation.x),
        "sites": shares,
        "together": together(federation.labels).tolist(),
        "mistaken": judge.mistaken(suggested, len(federation.classes)),
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


def together(labels: Candidates) -> Tensor:
    """How often two classes stand in the same candidate set."""
    sets = labels.values.double()
    counts = (sets.T @ sets).long()
    return counts - counts.diag().diag()


def over_sites(scores: dict[int, Scores], metric: str) -> Record:
    """Plain mean over sites, mean weighted by examples, worst site, and the number of examples."""
    values = torch.tensor([s[metric][0] for s in scores.values()], dtype=torch.float64)
    n = torch.tensor([s[metric][1] for s in scores.values()], dtype=torch.float64)
    return {
        "mean": float(values.mean()),
        "weighted": float((values * n).sum() / n.sum()),
        "worst": float(values.min()),
        "n": int(n.sum()),
    }


def summarise(folder: RunFolder, engine: Engine, scene: Scene, judge: Evaluator, head: Record) -> Record:
    """Write models, labels and `summary.json`, and return the summary."""
    federation, metric = scene.federation, judge.metric
    personal, common = engine.evaluate()
    labels = write_labels(folder, engine.beliefs(), scene, judge)
    write_models(folder, engine, federation.sites)
    shares = labels.pop("sites", [None] * len(federation.sites))
    table = [
        {"site": name, "train": n, "test": personal[k][metric][1], metric: personal[k][metric][0], "labels": shares[k]}
        for k, (name, n) in enumerate(zip(federation.sites, federation.sizes(), strict=True))
    ]
    summary = head | {
        "rounds": engine.state.round,
        "metric": metric,
        "personal": over_sites(personal, metric),
        "global": {name: {"value": value, "n": n} for name, (value, n) in common.items()},
        "sites": table,
        "classes": list(federation.classes),
        "labels": labels,
        "facts": scene.facts,
    }
    folder.write("summary.json", json.dumps(summary, indent=2))
    return summary
