"""FB-NLL's second half: labels corrected with the directions of a few clean rows at the server (Procedure 2).

    exchange  the server sends                                    a site sends
    classes   nothing                                             V_classes: directions of each local label
    decide    s: every clean class's score of them (Eq. 3-5);     how many labels it has changed, and the share
              U: directions of each clean class; margins,         that it estimates to be wrong
              rates and leads (or V_clean), see `calibration.py`

A site decides on its own; neither its labels nor its corrections are sent, and `classes` does not say to which label a
set of directions belongs. The directions of a label with fewer than max(M, 10) rows are not sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.fb_nll import calibration
from imperfed.repairs.fb_nll.calibration import lead, log_projections, margins
from imperfed.repairs.fb_nll.spectra import fewest, relevance, similarity, spectrum
from imperfed.repairs.features import features, phi

Phase1 = Literal["margin", "paper", "off"]
SURE = 0.95
"""The share of two-class mixtures whose lead a whole label must exceed to be relabelled."""
FOR_SITES = ("U", "margins", "rates", "leads", "V_clean")
"""The parts of the server's calibration that it sends to the sites."""
KEPT, ROW, WHOLE = range(3)
"""Why a label is what it is: kept, changed by its own features, or its whole label looks like another class."""


@dataclass(frozen=True)
class Correction:
    """Detection and correction of wrong labels, before training and at the site."""

    classes: tuple[str, ...]
    M: int
    phase1: Phase1
    threshold: float
    gate: float
    rank: int
    features: str
    task_of: tuple[int, ...]

    def exchanges(self) -> tuple[Query, ...]:
        """Return its exchanges before the sites decide."""
        if self.phase1 == "off":
            return ()
        return (Query("classes", self.compare, respond=self.show, ragged=True, partial=True),)

    @property
    def width(self) -> int:
        """The number of directions that phase 1 compares."""
        return 1 if self.phase1 == "margin" else self.M

    # -- a site ---------------------------------------------------------------------------------------------------

    def show(self, site: SiteView) -> Tree:
        """Return the directions of every label that has enough rows."""
        labels = site.labels.values
        site.memory["shown"] = (labels.bincount(minlength=len(self.classes)) >= fewest(self.M)).nonzero().flatten()
        F = phi(self.features, site)
        shown = [spectrum(F[labels == c], self.width)[1] for c in site.memory["shown"]]  # Eq. 2
        return {"V_classes": torch.stack(shown).float()} if shown else {}

    def decide(self, site: SiteView) -> LabelDecision:
        """Apply phase 2 to every row, then phase 1 to the labels that are clear as a whole."""
        labels, clean = site.labels.values, site.down["margins"]
        logs = self.within_task(log_projections(phi(self.features, site), site.down["U"].double()))
        best, margin = logs.argmax(1), margins(logs, labels)  # Eq. 7
        flipped = margin > torch.quantile(clean, 1 - self.gate)
        below = torch.searchsorted(clean, margin) / len(clean)  # share of clean rows that are closer to their class
        suggested, confidence = torch.where(flipped, best, labels), torch.where(flipped, below, 1 - below)
        why, whole = torch.where(flipped, ROW, KEPT), torch.zeros_like(flipped)
        for c, target, sure in self.whole_labels(site, logs.isfinite().any(0)):
            rows = labels == c
            suggested[rows], confidence[rows], why[rows] = target, sure, KEPT if target == c else WHOLE
            whole |= rows
        relabelled = int((why == WHOLE).sum())
        noise = (relabelled + self.estimate(flipped[~whole], site.down["rates"])) / len(labels)
        return LabelDecision(suggested, confidence.float(), why, noise)

    def estimate(self, flipped: Tensor, rates: Tensor) -> float:
        """Estimate the number of wrong labels from flips: some correct labels are flipped, and some wrong ones not."""
        false, power = map(float, rates)
        wrong = (float(flipped.sum()) - false * len(flipped)) / max(power - false, 1e-3)
        return min(max(wrong, 0.0), float(len(flipped)))

    def within_task(self, logs: Tensor) -> Tensor:
        """Mask all but the classes of the task to which most rows seem to belong, where tasks are known."""
        if not self.task_of:
            return logs
        task_of = torch.tensor(self.task_of)
        return logs.masked_fill(task_of != task_of[logs.argmax(1)].mode().values, -torch.inf)

    def whole_labels(self, site: SiteView, allowed: Tensor) -> Iterator[tuple[int, int, float]]:
        """Yield the labels that as a whole look like one clean class, that class, and the confidence (phase 1)."""
        if "s" not in site.down:
            return
        U = site.down.get("V_clean", site.down["U"][..., :1]).double()
        F = phi(self.features, site)
        for c, s in zip(site.memory["shown"].tolist(), site.down["s"], strict=True):
            rows = F[site.labels.values == c]
            R = similarity(relevance(rows, spectrum(rows, self.width)[0], U), s)  # Eq. 3-6
            R = R.masked_fill(~allowed, 0)
            target = int(R.argmax())
            if self.phase1 == "paper":
                if int((self.threshold < R).sum()) == 1:
                    yield c, target, float(R[target])
            elif lead(R) > torch.quantile(site.down["leads"], SURE):
                yield c, target, float(torch.searchsorted(site.down["leads"], lead(R)) / len(site.down["leads"]))

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, context: ServerView, basis: Tensor | None) -> Tree:
        """Return what the server computes from its clean rows, for the sites and for itself."""
        assert context.trusted is not None
        y, C = context.trusted.labels.values, len(self.classes)
        F = features(self.features, context.trusted.x, basis)
        rank = calibration.usable_rank(self.rank, F.shape[1], y, self.classes)
        logs = calibration.cross_fitted(F, y, C, rank)
        clean = margins(logs, y).sort().values
        threshold = torch.quantile(clean, 1 - self.gate)
        rates = torch.stack([(clean > threshold).double().mean(), calibration.power(logs, y, threshold)])
        findings = {"F": F, "U": calibration.class_directions(F, y, C, rank).float(), "margins": clean, "rates": rates}
        if self.phase1 == "margin":
            findings["leads"] = calibration.mixture_leads(F, y, C)
        elif self.phase1 == "paper":
            self.check_width(F, y)
            findings["V_clean"] = calibration.class_directions(F, y, C, self.M).float()
        return findings

    def send(self, server: Tree, site: int) -> Tree:
        """Return what a site needs to know about the clean rows to decide."""
        down = {name: server[name] for name in FOR_SITES if name in server}
        return down | ({"s": server[f"s/{site}"]} if f"s/{site}" in server else {})

    def check_width(self, F: Tensor, y: Tensor) -> None:
        """Refuse to compare more directions than a clean class has rows."""
        fewest, name = calibration.scarcest(y, self.classes)
        if fewest < min(self.M, F.shape[1]):
            raise UsageError(
                f"repair.phase1 = paper compares repair.M = {self.M} directions, but the server holds {fewest} clean "
                f"rows of class {name!r}: raise split.trusted, or set repair.M = {fewest} or repair.phase1 = margin"
            )

    def compare(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Score each set of directions that a site sent: its similarity to every clean class; s [L, C] per site."""
        assert context.trusted is not None
        y = context.trusted.labels.values
        clean = [server["F"][y == c] for c in range(len(self.classes))]
        lam = [spectrum(F, self.width)[0] for F in clean]

        def s(V: Tensor) -> Tensor:
            scores = [relevance(F, own, V.double()) for F, own in zip(clean, lam, strict=True)]  # Eq. 3-5
            return torch.stack(scores, 1)

        return server | {f"s/{k}": s(answer["V_classes"]) for k, answer in enumerate(updates.parts) if answer}
