"""The results of a repair in the folder of a run: the suggested labels with reasons, and how correct they are."""

from __future__ import annotations

from typing import Any

from imperfed.core.components import RepairResult
from imperfed.core.federation import Federation
from imperfed.evaluation.evaluator import Evaluator
from imperfed.results.folder import RunFolder
from imperfed.results.summary import RepairedSite, RepairSummary, Traffic


def write_repair(
    folder: RunFolder, name: str, repair_result: RepairResult, federation: Federation, evaluator: Evaluator
) -> RepairSummary:
    """Write `labels/<site>.parquet` and return the figures of the repair for `summary.json`."""
    given, suggested = repair_result.given, repair_result.suggested
    sites = []
    for k, site in enumerate(federation.sites):
        folder.save_table(f"labels/{site}.parquet", repaired_table(federation, repair_result, k))
        a, b = federation.starts[k], federation.starts[k + 1]
        group = federation.groups[k] if federation.groups else 0
        figures = evaluator.repaired(a, b, given[a:b], suggested[a:b])
        sites.append(RepairedSite(site, group, repair_result.noise[k], figures))
    return RepairSummary(
        name=name,
        n=len(given),
        changed=int((given != suggested).sum()),
        figures=evaluator.repaired(0, len(given), given, suggested),
        groups=len(set(federation.groups)) or 1,
        adjusted_rand_index=evaluator.rand_index(federation.groups),
        sent={name: tuple(shape) for name, shape in repair_result.sent.items()},
        bytes=Traffic(up=repair_result.up, down=repair_result.down),
        sites=tuple(sites),
    )


def repaired_table(federation: Federation, repair_result: RepairResult, site: int) -> dict[str, list[Any]]:
    """Return the columns of a site's label file."""
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
