"""From the judgement of candidate sets to the findings of an audit: which probably miss the true class."""

from __future__ import annotations

from msgspec.structs import replace
from torch import Tensor

from imperfed.evaluation.model_figures import figure
from imperfed.label_audit.audit_summary import AuditedSite, AuditSummary, KnownTruth, LabelNoise
from imperfed.label_audit.judging import Judgement
from imperfed.label_audit.set_sentences import ADVICE, findings_of_sets, set_cautions
from imperfed.label_audit.worst_rows import Columns, worst
from imperfed.repairs.posterior.set_model import outside_mass


def set_columns(judged: Judgement, site: int) -> Columns:
    """Return the columns of a site's label file."""
    federation, decision = judged.federation, judged.result.decisions[site]
    a, b = judged.ranges()[site]
    Q, S, classes = posterior(judged, site), decision.decided, federation.classes
    probability, suggested = Q.max(1)
    return {
        "id": list(federation.ids[a:b]),
        "given": list(federation.labels.between(a, b).written(classes)),
        "suggested": [classes[c] for c in suggested.tolist()],
        "probability": probability.tolist(),
        "suspicion": outside_mass(Q, S).clamp(min=0).tolist(),
        "decision": ["keep"] * (b - a),
        "reason": list(judged.result.reason[a:b]),
    }


def posterior(judged: Judgement, site: int) -> Tensor:
    """Return the probability of every class for every row of a site."""
    found = judged.result.decisions[site].posterior
    assert found is not None
    return found


def summarise_sets(judged: Judgement, method: str, features: str) -> AuditSummary:
    """Return all findings."""
    federation, verdict = judged.federation, judged.verdict
    sites = tuple(_site(judged, k) for k in range(len(federation.sites)))
    noise = float(outside_mass(judged.posterior, judged.result.decided).mean())
    found = AuditSummary(
        data=federation.name,
        method=method,
        features=features,
        clean_rows=0,
        classes=federation.classes,
        rows=len(federation.labels),
        noise=noise,
        noise_after=noise,
        suspects=sum(site.suspects for site in sites),
        changes=0,
        agreement=verdict.figures["agreement"],
        contradicted=None,
        clear=verdict.figures["clear"],
        level=None,
        left_alone=verdict.alone,
        trusted=not verdict.alone,
        support=verdict.words,
        findings=(),
        advice=ADVICE,
        cautions=(),
        sites=sites,
        truth=_truth(judged, 0, len(federation.labels)),
        others=judged.others,
        sets=True,
    )
    return replace(found, findings=tuple(findings_of_sets(found)), cautions=tuple(set_cautions(found)))


def _site(judged: Judgement, k: int) -> AuditedSite:
    a, b = judged.ranges()[k]
    Q, S = posterior(judged, k), judged.result.decisions[k].decided
    suspects = outside(Q, S)
    return AuditedSite(
        site=judged.federation.sites[k],
        rows=b - a,
        noise=float(judged.result.decisions[k].noise),
        suspects=int(suspects.sum()),
        changes=0,
        unlike=None,
        labels=missed_classes(Q, S, judged.federation.classes),
        mixed_up=(),
        worst=worst(set_columns(judged, k), suspects.tolist()),
        truth=_truth(judged, a, b),
    )


def outside(Q: Tensor, S: Tensor) -> Tensor:
    """Return the rows whose most probable class is no candidate."""
    return ~S.gather(1, Q.argmax(1, keepdim=True)).flatten()


def missed_classes(Q: Tensor, S: Tensor, classes: tuple[str, ...]) -> tuple[LabelNoise, ...]:
    """Return for every class how many sets name it, and how many of its rows have a set without it."""
    named, rows, missed = S.sum(0).tolist(), Q.sum(0), (Q * ~S).sum(0)
    return tuple(
        LabelNoise(name, named[c], None, figure(float(missed[c] / rows[c])) if float(rows[c]) >= 0.5 else None)
        for c, name in enumerate(classes)
    )


def _truth(judged: Judgement, a: int, b: int) -> KnownTruth | None:
    Q, S = judged.posterior[a:b], judged.result.decided[a:b]
    labels = judged.federation.labels.between(a, b)
    figures = judged.evaluator.suspected(a, b, labels, outside_mass(Q, S), outside(Q, S))
    return None if figures is None else KnownTruth(figures, None)
