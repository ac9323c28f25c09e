"""What a repair leaves in a run's folder: the labels it suggests with its reasons, and how right they are."""

from __future__ import annotations

import math
from typing import Any

from imperfed.core.components import RepairResult
from imperfed.core.federation import Federation
from imperfed.evaluation.evaluator import Evaluator
from imperfed.results.folder import Record, RunFolder


def write_repair(
    folder: RunFolder, name: str, repair_result: RepairResult, federation: Federation, evaluator: Evaluator
) -> Record:
    """`labels/<site>.parquet`, and the figures of the repair for `summary.json`."""
    sites = []
    for k, site in enumerate(federation.sites):
        folder.save_table(f"labels/{site}.parquet", mended_table(federation, repair_result, k))
        group = federation.groups[k] if federation.groups else 0
        own = figures(repair_result, evaluator, federation.starts[k], federation.starts[k + 1]) or {}
        sites.append({"site": site, "group": group, "noise estimate": repair_result.noise[k], **own})
    return {
        "name": name,
        "n": len(repair_result.given),
        "changed": int((repair_result.given != repair_result.suggested).sum()),
        "figures": figures(repair_result, evaluator, 0, len(repair_result.given)),
        "groups": len(set(federation.groups)) or 1,
        "adjusted rand index": evaluator.rand_index(federation.groups),
        "sent": {name: list(shape) for name, shape in repair_result.sent.items()},
        "bytes": {"up": repair_result.up, "down": repair_result.down},
        "sites": sites,
    }


def figures(repair_result: RepairResult, evaluator: Evaluator, start: int, stop: int) -> Record | None:
    """The figures of these rows; None where truth is unknown, and for a share of nothing, as JSON has no NaN."""
    found = evaluator.mended(start, stop, repair_result.given[start:stop], repair_result.suggested[start:stop])
    return found and {name: value if math.isfinite(value) else None for name, value in found.items()}


def mended_table(federation: Federation, repair_result: RepairResult, site: int) -> dict[str, list[Any]]:
    """The columns of a site's label file."""
    a, b = federation.starts[site], federation.starts[site + 1]
    names = federation.classes
    return {
        "id": list(federation.ids[a:b]),
        "given": [names[c] for c in repair_result.given[a:b].tolist()],
        "suggested": [names[c] for c in repair_result.suggested[a:b].tolist()],
        "confidence": repair_result.confidence[a:b].tolist(),
        "reason": list(repair_result.reason[a:b]),
        "noise estimate": [repair_result.noise[site]] * (b - a),
    }
