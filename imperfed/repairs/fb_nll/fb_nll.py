"""FB-NLL as a whole: its settings, the conversation between server and sites, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import Repair, RepairResult
from imperfed.core.errors import UsageError, positive
from imperfed.core.federation import TO_TRUST, Federation
from imperfed.core.labels import Exact, Labels
from imperfed.repairs.fb_nll.clusters import Linkage
from imperfed.repairs.fb_nll.correction import KEPT, Correction, Phase1
from imperfed.repairs.fb_nll.grouping import Grouping
from imperfed.repairs.fb_nll.spectra import spectrum
from imperfed.repairs.protocol import LabelDecision, RepairStep, Transcript, View, converse, nothing

REASONS = ("kept as given", "its features fit {} better", "all rows of its label look like {}")
PCA_DIRECTIONS = 64


@dataclass(frozen=True)
class FBNLL(Repair):
    """FB-NLL: one-shot groups of sites, and label correction against a few clean rows at the server."""

    name: ClassVar[str] = "fb-nll"
    labels: ClassVar[type[Labels]] = Exact
    groups: int = 1  # number of tasks; 1: no clustering
    M: int = 10  # directions compared
    linkage: Linkage = "average"  # between groups of sites
    center: bool = False  # centred second moments, for studies
    correct: bool = True  # False: FB-NLL(-)
    phase1: Phase1 = "margin"  # whole labels: by margin, by threshold (paper), or not at all (off)
    threshold: float = 0.5  # phase1 = paper: the similarity that exactly one clean class must exceed
    gate: float = 0.05  # share of clean labels that phase 2 may change; 1: the paper
    rank: int = 10  # directions of a clean class in Eq. 7: at most d/4 and 3/4 of its rows; 5 where it has below 20
    features: str = "auto"  # phi for groups: raw, pca, hog, efficientnet-lite0, module:function
    class_features: str = ""  # phi for correction; empty: the same
    known_tasks: tuple[int, ...] = ()  # the task of every class, where known: Eq. 7 then stays within a site's task

    def __post_init__(self) -> None:
        positive("repair", groups=self.groups, M=self.M, rank=self.rank, gate=self.gate)
        if self.gate > 1:
            raise UsageError(f"repair.gate is a share: at most 1; got {self.gate:g}")

    @property
    def grouping(self) -> Grouping:
        """The first half."""
        return Grouping(self.groups, self.M, self.linkage, self.center, self.features)

    def correction(self, classes: tuple[str, ...]) -> Correction:
        """The second half."""
        phi = self.class_features or self.features
        return Correction(classes, self.M, self.phase1, self.threshold, self.gate, self.rank, phi, self.known_tasks)

    def steps(self, classes: tuple[str, ...]) -> tuple[RepairStep, ...]:
        """The whole conversation."""
        return (
            *((RepairStep("basis", nothing, share_basis),) if "pca" in (self.features, self.class_features) else ()),
            *(self.grouping.steps() if self.groups > 1 else ()),
            *(self.correction(classes).steps() if self.correct else ()),
        )

    def repair(self, federation: Federation, draw: torch.Generator) -> tuple[Federation, RepairResult]:
        """Hold the conversation in this process, and let every site correct its labels."""
        given = self.check(federation)
        cuts = zip(federation.starts, federation.starts[1:], strict=False)
        views = [View(k, federation.inputs(a, b), given.between(a, b)) for k, (a, b) in enumerate(cuts)]
        talk = converse(self.steps(federation.classes), views, self.opening(federation))
        federation = self.grouped(federation, talk)
        verdicts = [self.decide(federation.classes, view, had) for view, had in zip(views, talk.received, strict=True)]
        noise = tuple(None if math.isnan(v.noise) else v.noise for v in verdicts)
        repair_result = self.told(federation, talk, LabelDecision.of_all(verdicts), noise)
        if self.correct:
            federation = replace(federation, labels=Exact(repair_result.suggested, given.classes))
        return federation, repair_result

    def opening(self, federation: Federation) -> Tree:
        """What the server remembers before the conversation: its clean rows, where it has any."""
        trusted = federation.trusted
        return {} if trusted is None else {"x": trusted.x, "y": trusted.labels.values}

    def grouped(self, federation: Federation, talk: Transcript) -> Federation:
        """With the groups that the conversation has found."""
        if "groups" not in talk.server:
            return federation
        return replace(federation, groups=tuple(talk.server["groups"].tolist()))

    def decide(self, classes: tuple[str, ...], view: View, received: Tree) -> LabelDecision:
        """At a site, after the conversation: what to think of its own labels."""
        if self.correct:
            return self.correction(classes).decide(view, received)
        given = view.labels.values
        return LabelDecision(given, torch.ones(len(given)), torch.full_like(given, KEPT), math.nan)

    def reasons(self, classes: tuple[str, ...], verdict: LabelDecision) -> tuple[str, ...]:
        """Why each label is what it is, in words."""
        names = [classes[c] for c in verdict.suggested.tolist()]
        return tuple(REASONS[w].format(c) for w, c in zip(verdict.why.tolist(), names, strict=True))

    def check(self, federation: Federation) -> Exact:
        """The labels as given; what cannot be mended is refused before anything is sent."""
        classes = len(federation.classes)
        if not isinstance(federation.labels, Exact):
            raise UsageError(f"repair {self.name} mends exact labels; the sites hold {federation.labels.kind}")
        if self.known_tasks and len(self.known_tasks) != classes:
            raise UsageError(
                f"repair.known_tasks must name a task for each of {classes} classes; got {len(self.known_tasks)}"
            )
        if federation.trusted is None and (self.correct or "pca" in (self.features, self.class_features)):
            raise UsageError(f"repair {self.name} needs clean rows at the server: {TO_TRUST}")
        return federation.labels

    def told(
        self, federation: Federation, talk: Transcript, verdict: LabelDecision, noise: tuple[float | None, ...]
    ) -> RepairResult:
        """What was done, for the label files and the log."""
        reasons = self.reasons(federation.classes, verdict)
        notes = [f"repair {self.name}: {int((verdict.why != KEPT).sum())} of {len(reasons)} labels corrected"]
        if federation.groups:
            notes.append(f"repair {self.name}: groups of the sites {list(federation.groups)}")
        traffic = talk.sent(), talk.bytes(up=False), talk.bytes(up=True)
        given, suggested = federation.labels.values, verdict.suggested
        return RepairResult(given, suggested, verdict.confidence, reasons, noise, *traffic, tuple(notes))


def share_basis(server: Tree, answers: tuple[Tree, ...]) -> tuple[Tree, tuple[Tree, ...]]:
    """Compute the basis of `pca` features from the server's clean rows, and send it to all sites."""
    basis = pca_basis(server["x"])
    return server | {"basis": basis}, ({"basis": basis},) * len(answers)


def pca_basis(x: Tensor) -> Tensor:
    """Return the leading directions of the second moment of these rows, float32 [d, p]."""
    return spectrum(x.flatten(1).double(), PCA_DIRECTIONS)[1].float()
