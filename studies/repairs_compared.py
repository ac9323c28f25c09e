"""One federation, all repairs: the share of wrong labels after each, and how well suspects are ranked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from imperfed.core.components import LabelDecision, RepairVerdict
from imperfed.core.context import ServerView
from imperfed.core.errors import ImperfedError
from imperfed.core.federation import Federation
from imperfed.core.threads import one_thread
from imperfed.engine.conversation import ask_here, converse, repair_labels, views
from imperfed.evaluation.label_figures import SuspectFigures
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.repairs.posterior.axes import MOST, TINY, coordinates, standardised
from imperfed.repairs.posterior.cross_fit import FOLDS, RIDGE, fit, one_hot
from studies.controls import corrected_by, means, probe
from studies.lines import Record

POSTERIORS = {
    "posterior, clean rows": PosteriorRepair(features="raw"),
    "posterior, none": PosteriorRepair(features="raw", clean_rows="ignore"),
}
Found = TypeVar("Found")
Ranked = tuple[Tensor, Tensor]
"""Labels after a repair, and the suspicion of every label as given."""


def compared(federation: Federation, truth: Tensor) -> Record:
    """Return the share of wrong labels before and after each repair, and average precisions of two rankings.

    Whatever a method refuses, such as too few clean rows of a class, or a package that is not installed, is None.
    """
    given, wrong = federation.labels.values, federation.labels.values != truth
    gate = FBNLL().gate
    plain: dict[str, Callable[[], Tensor]] = {
        "FB-NLL": lambda: repair_labels(FBNLL(features="raw"), federation)[1].decided,
        "class means": lambda: corrected_by(means, federation, gate),
        "probe": lambda: corrected_by(probe, federation, gate),
    }
    record: Record = {"before": share(wrong)}
    for name, repair in plain.items():
        labels = attempt(repair)
        record[name] = None if labels is None else share(labels != truth)
    pooled = attempt(lambda: by_cleanlab(federation))
    record["cleanlab"] = None if pooled is None else share(pooled[0] != truth)
    record["cleanlab ranks"] = None if pooled is None else ranking(pooled[1], wrong)
    for name, posterior in POSTERIORS.items():
        checked, unchecked, verdict = both_ways(posterior, federation)
        record[name] = share(labels_of(checked) != truth)
        record[f"{name} unchecked"] = share(labels_of(unchecked) != truth)
        record[f"{name} ranks"] = ranking(suspicion(unchecked, given), wrong)
        record[f"{name} alone"] = len(verdict.alone) / len(federation.sites)
        record |= {f"{name} {what}": figure for what, figure in verdict.figures.items()}
    return record


def both_ways(
    repair: PosteriorRepair, federation: Federation
) -> tuple[list[LabelDecision], list[LabelDecision], RepairVerdict]:
    """Return what every site decides with the repair's check of itself and without, and what the check says."""
    sites, classes = views(federation), federation.classes
    exchanges = repair.exchanges(classes, federation.trusted is not None)
    context = ServerView(classes=classes, sites=federation.sites, trusted=federation.trusted)
    with one_thread():
        opened, ask = repair.init_server(context), ask_here(exchanges, sites)
        server = converse(exchanges, opened, context, federation.sizes(), ask).server
        told = [replace(site, down=repair.send_findings(server, k)) for k, site in enumerate(sites)]
        ways = [replace(repair, insist=insist) for insist in (False, True)]
        checked, unchecked = ([way.decide(classes, site) for site in told] for way in ways)
    return checked, unchecked, repair.verdict(server, federation.sites)


def labels_of(decisions: list[LabelDecision]) -> Tensor:
    """Return the labels of all rows."""
    return torch.cat([decision.decided for decision in decisions])


def suspicion(decisions: list[LabelDecision], given: Tensor) -> Tensor:
    """Return one minus the probability of every label as given."""
    Q = torch.cat([decision.posterior for decision in decisions if decision.posterior is not None])
    return 1 - Q.gather(1, given[:, None]).flatten()


def by_cleanlab(federation: Federation) -> Ranked:
    """Return labels in which cleanlab's issues, on the pooled rows, have the class that the first probe predicts."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    x, g, C = federation.x.flatten(1).double(), federation.labels.values, len(federation.classes)
    scale = {"mu": x.mean(0), "sd": x.std(0, correction=0) + TINY}
    z = standardised(x, scale)
    A = coordinates(x, scale, torch.linalg.eigh(z.T @ z / len(z))[1][:, -MOST:])
    fold = torch.cat([torch.arange(n) for n in federation.sizes()]) % FOLDS
    W = fit(A, one_hot(g, C), (fold[:, None] != torch.arange(FOLDS)).double(), RIDGE)
    p = torch.softmax((A @ W)[fold, torch.arange(len(A))], -1)
    issues = torch.from_numpy(find_label_issues(g.numpy(), p.numpy(), n_jobs=1))
    quality = torch.from_numpy(get_label_quality_scores(g.numpy(), p.numpy()))
    return torch.where(issues, p.argmax(1), g), 1 - quality


def attempt(method: Callable[[], Found]) -> Found | None:
    """Return what a method finds; None where it refuses the data or its package is missing."""
    try:
        return method()
    except (ImperfedError, ImportError):
        return None


def share(mask: Tensor) -> float:
    """Return the share of rows in a mask."""
    return float(mask.double().mean())


def ranking(suspected: Tensor, wrong: Tensor) -> float | None:
    """Return the average precision of a ranking; None where no label is wrong."""
    return SuspectFigures.of(suspected, wrong, wrong).average_precision if wrong.any() else None
