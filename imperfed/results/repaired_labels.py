"""The results of a repair in the folder of a run: the suggested labels with reasons, and how correct they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from imperfed.core.components import LabelDecision, RepairResult
from imperfed.core.federation import Federation
from imperfed.evaluation.evaluator import Evaluator
from imperfed.evaluation.model_figures import figure
from imperfed.results.folder import RunFolder
from imperfed.results.repair_summary import MixUp, RepairedSite, RepairSummary, Traffic

TINY = 1e-12
"""Added to probabilities before their logarithm is taken."""
MOST_MIX_UPS, FEWEST_ROWS = 5, 1.0
"""How many pairs of classes a summary names for a site, and the rows that a pair must have."""


def write_repair(
    folder: RunFolder, name: str, repair_result: RepairResult, federation: Federation, evaluator: Evaluator
) -> RepairSummary:
    """Write `labels/<site>.parquet` and return the figures of the repair for `summary.json`."""
    given, decided = repair_result.given, repair_result.decided
    sites = []
    for k, site in enumerate(federation.sites):
        folder.save_table(f"labels/{site}.parquet", repaired_table(federation, repair_result, k))
        a, b = federation.starts[k], federation.starts[k + 1]
        group = federation.groups[k] if federation.groups else 0
        figures = evaluator.repaired(a, b, given[a:b], decided[a:b])
        mixed_up = mix_ups(repair_result.decisions[k], federation.classes)
        sites.append(RepairedSite(site, group, repair_result.noise[k], figures, mixed_up))
    verdict = repair_result.verdict
    return RepairSummary(
        name=name,
        n=len(given),
        changed=int((given != decided).sum()),
        figures=evaluator.repaired(0, len(given), given, decided),
        groups=len(set(federation.groups)) or 1,
        adjusted_rand_index=evaluator.rand_index(federation.groups),
        sent={name: tuple(shape) for name, shape in repair_result.sent.items()},
        bytes=Traffic(up=repair_result.up, down=repair_result.down),
        sites=tuple(sites),
        support=verdict.words if verdict else "",
        left_alone=verdict.alone if verdict else (),
    )


def repaired_table(federation: Federation, repair_result: RepairResult, site: int) -> dict[str, list[Any]]:
    """Return the columns of a site's label file."""
    a, b = federation.starts[site], federation.starts[site + 1]
    decision, reasons = repair_result.decisions[site], repair_result.reason[a:b]
    return decision_table(federation.ids[a:b], repair_result.given[a:b], decision, reasons, federation.classes)


def decision_table(
    ids: Sequence[str], given: Tensor, decision: LabelDecision, reasons: Sequence[str], classes: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the columns of a label file: what was given, what is suggested instead, how sure, and why."""
    columns: dict[str, list[Any]] = {"id": list(ids), "given": [classes[c] for c in given.tolist()]}
    if decision.posterior is None:
        columns["suggested"] = [classes[c] for c in decision.decided.tolist()]
        columns["confidence"] = decision.confidence.tolist()
    else:
        columns |= posterior_columns(given, decision.decided, decision.posterior, classes)
    return columns | {"reason": list(reasons), "noise estimate": [figure(decision.noise)] * len(given)}


def posterior_columns(given: Tensor, decided: Tensor, Q: Tensor, classes: Sequence[str]) -> dict[str, list[Any]]:
    """Return the most probable label of every row, how probable it is and the given one is not, and the decision."""
    probability, suggested = Q.max(1)
    of_given = Q.gather(1, given[:, None]).flatten()
    return {
        "suggested": [classes[c] for c in suggested.tolist()],
        "probability": probability.tolist(),
        "suspicion": (1 - of_given).clamp(min=0).tolist(),
        "lead": ((probability + TINY).log() - (of_given + TINY).log()).tolist(),
        "decision": ["change" if changed else "keep" for changed in (decided != given).tolist()],
    }


def mix_ups(decision: LabelDecision, classes: Sequence[str]) -> tuple[MixUp, ...] | None:
    """Return the classes that a site most often takes for others, the most frequent first; None: not estimated."""
    return None if decision.joint is None else mixed_up_in(decision.joint, len(decision.decided), classes)


def mixed_up_in(joint: Tensor, rows: int, classes: Sequence[str]) -> tuple[MixUp, ...]:
    """Return the classes most often taken for others; `joint`: shares of these rows by true and given class."""
    shares = joint - joint.diagonal().diag()
    share, place = shares.flatten().sort(descending=True, stable=True)
    of_class = joint.sum(1)
    pairs = [(s, *divmod(i, len(classes))) for s, i in zip(share.tolist(), place.tolist(), strict=True)]
    named = [(s, y, g) for s, y, g in pairs[:MOST_MIX_UPS] if s * rows >= FEWEST_ROWS]
    return tuple(MixUp(classes[y], classes[g], s / float(of_class[y]), s * rows) for s, y, g in named)
