"""What a run gives back where labels are missing: the labels filled in, and figures class by class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.engine.engine import Engine
from imperfed.evaluation.evaluator import ANNOTATED, NEVER_ANNOTATED, Evaluator, Scores, figure
from imperfed.results.folder import Record, RunFolder

WORDS = {1: "present", 0: "absent", -1: ""}


def write_filled_labels(folder: RunFolder, belief: Tensor, federation: Federation, evaluator: Evaluator) -> Record:
    """`labels/<site>.parquet`, and how well missing labels were filled in, where that is known."""
    assert evaluator.annotated is not None
    heard = evaluator.annotated.any(0)  # nothing was learned of the other classes
    missing = (federation.labels.values < 0) & heard
    shares = []
    for k, site in enumerate(federation.sites):
        a, b = federation.starts[k], federation.starts[k + 1]
        folder.save_table(f"labels/{site}.parquet", filled_table(federation, a, b, belief[a:b], heard))
        found = evaluator.filled_in(a, b, missing[a:b], belief[a:b])
        shares.append(found and found["auroc"])
    if not missing.any():
        return {}
    sure = torch.maximum(belief, 1 - belief)[missing]
    overall = evaluator.filled_in(0, len(missing), missing, belief)
    unknown = {"accuracy": None, "always absent": None, "auroc": None, "n": 0}
    head = {"filled in": int(missing.sum()), "mean confidence": float(sure.mean()), "sites": shares}
    return head | (unknown if overall is None else overall)


def filled_table(federation: Federation, a: int, b: int, belief: Tensor, heard: Tensor) -> dict[str, list[Any]]:
    """The columns of a site's label file: one line an example and class; `heard`: classes that anybody annotates."""
    classes, values = federation.classes, federation.labels.values[a:b].flatten()
    present, known = belief.flatten() >= 0.5, heard.repeat(b - a)
    suggested = torch.where(known, present.int(), -1)
    sure = torch.where(present, belief.flatten(), 1 - belief.flatten())
    return {
        "id": [name for name in federation.ids[a:b] for _ in classes],
        "class": list(classes) * (b - a),
        "given": [WORDS[v] for v in values.tolist()],
        "suggested": [WORDS[v] for v in suggested.tolist()],
        "confidence": [c if there else None for c, there in zip(sure.tolist(), known.tolist(), strict=True)],
        "reason": [why(v, there) for v, there in zip(values.tolist(), known.tolist(), strict=True)],
    }


def why(value: int, heard: bool) -> str:
    """The reason of one line of a label file."""
    if not heard:
        return "nobody annotates this class"
    return "annotated" if value >= 0 else "filled in"


def areas(engine: Engine, evaluator: Evaluator) -> Tensor | None:
    """The AUROC of every class at every site, [K, C]; None where no labels are missing or the rows are elsewhere."""
    if evaluator.annotated is None or engine.population.federation.elsewhere:
        return None
    evaluator = evaluator.to(engine.population.runtime.net.row.device)
    return torch.stack([evaluator.by_class(k, engine.population.predictor(k)) for k in range(evaluator.sites)])


def by_class(areas: Tensor | None, federation: Federation, evaluator: Evaluator) -> list[Record]:
    """Every class: which sites annotate it, and its AUROC as a mean over all sites, over those, and over the others."""
    if areas is None or evaluator.annotated is None:
        return []
    table: list[Record] = []
    for name, values, area, here in zip(
        federation.classes, federation.labels.values.T, areas.T, evaluator.annotated.T, strict=True
    ):
        means = {"auroc": area, ANNOTATED: area[here], NEVER_ANNOTATED: area[~here]}
        counts = {"annotations": int((values >= 0).sum()), "positives": int((values == 1).sum())}
        where = [site for site, own in zip(federation.sites, here.tolist(), strict=True) if own]
        table.append(
            {"class": name, "annotated at": where} | counts | {n: figure(float(a.nanmean())) for n, a in means.items()}
        )
    return table


def apart(scores: Scores) -> Record:
    """A site's figures over the classes it annotates and over those it never does, where they are told apart."""
    return {name: figure(scores[name][0]) for name in (ANNOTATED, NEVER_ANNOTATED) if name in scores}
