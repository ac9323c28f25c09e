"""From the judgement of every label to the findings of an audit."""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.evaluation.model_figures import figure
from imperfed.label_audit.audit_summary import AuditedSite, AuditSummary, KnownTruth, LabelNoise
from imperfed.label_audit.cautions import cautions
from imperfed.label_audit.judging import Judgement
from imperfed.label_audit.sentences import advice, findings
from imperfed.label_audit.set_findings import set_columns, summarise_sets
from imperfed.label_audit.worst_rows import Columns, worst
from imperfed.results.repaired_labels import mix_ups, repaired_table

COLUMNS = ("id", "given", "suggested", "probability", "suspicion", "decision", "reason")
"""The columns of a label file."""


def label_columns(judged: Judgement, site: int) -> Columns:
    """Return the columns of a site's label file."""
    if judged.sets:
        return set_columns(judged, site)
    table = repaired_table(judged.federation, judged.result, site)
    return {name: table[name] for name in COLUMNS}


def summarise(judged: Judgement, method: str, features: str) -> AuditSummary:
    """Return all findings."""
    if judged.sets:
        return summarise_sets(judged, method, features)
    federation, result = judged.federation, judged.result
    Q, given, decided = judged.posterior, result.given, result.decided
    pooled = len(given) * judged.joint
    sites = tuple(_site(judged, k) for k in range(len(federation.sites)))
    noise, after = (float((1 - Q.gather(1, labels[:, None])).mean()) for labels in (given, decided))
    summary = AuditSummary(
        data=federation.name,
        method=method,
        features=features,
        clean_rows=judged.clean_rows,
        classes=federation.classes,
        rows=len(given),
        noise=noise,
        noise_after=after,
        suspects=sum(site.suspects for site in sites),
        changes=sum(site.changes for site in sites),
        agreement=judged.verdict.figures["agreement"],
        contradicted=judged.verdict.figures["contradicted"],
        clear=judged.verdict.figures["clear"],
        level=judged.verdict.figures["level"],
        left_alone=judged.verdict.alone,
        trusted=len(judged.verdict.alone) < len(sites),
        support=judged.verdict.words,
        findings=(),
        advice="",
        cautions=(),
        sites=sites,
        truth=_truth(judged, 0, len(given)),
        others=judged.others,
    )
    from msgspec.structs import replace

    words = replace(summary, findings=tuple(findings(summary)), advice=advice(summary))
    return replace(words, cautions=tuple(cautions(summary, judged.federation.classes, pooled)))


def _site(judged: Judgement, k: int) -> AuditedSite:
    federation, decision = judged.federation, judged.result.decisions[k]
    a, b = judged.ranges()[k]
    Q, joint, given = decision.posterior, decision.joint, judged.result.given[a:b]
    assert Q is not None
    assert joint is not None
    return AuditedSite(
        site=federation.sites[k],
        rows=b - a,
        noise=float(decision.noise),
        suspects=int((Q.argmax(1) != given).sum()),
        changes=int((decision.decided != given).sum()),
        unlike=unlike(joint, judged.joint),
        labels=label_noise(Q, given, federation.classes),
        mixed_up=mix_ups(decision, federation.classes) or (),
        worst=worst(label_columns(judged, k), (Q.argmax(1) != given).tolist()),
        truth=_truth(judged, a, b),
    )


def unlike(joint: Tensor, pooled: Tensor) -> float:
    """Return the share of a site's labels that the noise of all sites together would have made otherwise."""
    own, all_sites = (rows / rows.sum(1, keepdim=True).clamp(min=1e-12) for rows in (joint, pooled))
    distance = (own - all_sites).abs().sum(1) / 2
    return float((joint.sum(1) / joint.sum() * distance).sum())


def label_noise(Q: Tensor, given: Tensor, classes: tuple[str, ...]) -> tuple[LabelNoise, ...]:
    """Return for every label how many rows have it, how many of them should not, and how many others should."""
    rows = torch.zeros(len(classes), len(classes), dtype=Q.dtype).index_add_(0, given, Q).T  # true class, label
    right, as_given, as_true = rows.diagonal(), rows.sum(0), rows.sum(1)
    counts = given.bincount(minlength=len(classes)).tolist()
    return tuple(
        LabelNoise(
            name,
            counts[c],
            figure(float(1 - right[c] / as_given[c])) if counts[c] else None,
            figure(float(1 - right[c] / as_true[c])) if float(as_true[c]) >= 0.5 else None,
        )
        for c, name in enumerate(classes)
    )


def _truth(judged: Judgement, a: int, b: int) -> KnownTruth | None:
    Q, given = judged.posterior[a:b], judged.result.given[a:b]
    suspicion, suspects = 1 - Q.gather(1, given[:, None]).flatten(), Q.argmax(1) != given
    figures = judged.evaluator.suspected(a, b, judged.federation.labels.between(a, b), suspicion, suspects)
    changes = judged.evaluator.repaired(a, b, given, judged.result.decided[a:b])
    return None if figures is None else KnownTruth(figures, changes)
