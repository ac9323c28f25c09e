"""A look at exact labels before the search: where many are wrong and the features confirm that, sites repair them.

The rows that sites hold out have wrong labels too, so a search that believes them compares models by noise. The
posterior repair checks itself (`repairs/posterior/support.py`) and changes nothing where classes overlap or next to
nothing is wrong; then the search goes on with the labels as given. Of several kinds of features, those count that
predict most of the labels as given: no truth is needed for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from imperfed.core.components import RepairResult
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.work import CORES, repair_seconds
from imperfed.experiments.config import NONE
from imperfed.experiments.run_data import as_trained
from imperfed.repairs.features import resolved
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.results.auto_summary import LabelCheck

FEATURES = ("auto", "raw")
"""What describes the rows; for tables, both are the inputs themselves."""
SHARE = 0.25
"""The part of a search that may go into the look."""
FEWEST = 0.01
"""The share of labels below which correcting them is not worth a word."""


@dataclass(frozen=True)
class CheckedLabels:
    """What a search goes on with."""

    request: AutoRequest
    """What was asked for, and the repair if one is made."""
    at_sites: FederatedData
    """The data as sites train on them: attacked, and repaired if a repair is made."""
    check: LabelCheck


def check_labels(request: AutoRequest, data: FederatedData) -> CheckedLabels:
    """Look at the labels as given, and repair them if the features confirm it; `data`: before any attack or repair."""
    at_sites, result = as_trained(request.base, data)
    if request.base.repair is not None:
        assert result is not None
        return CheckedLabels(request, at_sites, described(request.base.repair.name, result))
    if reason := left_as_given(request, at_sites.federation):
        return CheckedLabels(request, at_sites, LabelCheck(words=reason))
    tried = [
        repaired(request, features, data)
        for features in dict.fromkeys(resolved(name, at_sites.federation.x[:1]) for name in FEATURES)
    ]
    best = max(tried, key=lambda one: one.check.predicted)
    if best.check.corrected >= FEWEST * best.check.labels:
        return best
    return CheckedLabels(request, at_sites, LabelCheck(words=f"few or none are clearly wrong ({best.check.words})"))


def left_as_given(request: AutoRequest, federation: Federation) -> str:
    """Return why labels are not looked at; empty if nothing stands against it."""
    if request.base.run.repair == NONE:
        return "no repair is wanted (repair = none)"
    if not isinstance(federation.labels, Exact):
        return f"{federation.labels.title} are not repaired, only labels that name one class"
    if width(federation.x):
        return "inputs are sparse, which no repair reads"
    seconds, most = len(FEATURES) * repair_seconds(federation), SHARE * 60 * request.budget * CORES
    if seconds > most:
        return f"{federation.starts[-1]} rows are too many to look at their labels within this budget"
    return ""


def repaired(request: AutoRequest, features: str, data: FederatedData) -> CheckedLabels:
    """Return the request with the posterior repair on these features, and what it makes of the data."""
    name = PosteriorRepair.name
    asked = replace(request, words={**request.words, "repair": name, "repair.features": features})
    at_sites, result = as_trained(asked.base, data)
    assert result is not None
    return CheckedLabels(asked, at_sites, described(name, result))


def described(repair: str, result: RepairResult) -> LabelCheck:
    """Return what a repair found."""
    corrected, verdict = int((result.decided != result.given).sum()), result.verdict
    if verdict is None:
        return LabelCheck(repair, corrected, len(result.given))
    return LabelCheck(repair, corrected, len(result.given), verdict.words, verdict.figures.get("agreement", 0.0))
