"""FB-NLL as a whole: its settings, the exchanges between server and sites, and their result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision, Repair
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import TO_TRUST, Federation
from imperfed.core.labels import Exact, Labels
from imperfed.repairs.fb_nll.clusters import Linkage
from imperfed.repairs.fb_nll.correction import KEPT, Correction, Phase1
from imperfed.repairs.fb_nll.grouping import Grouping
from imperfed.repairs.fb_nll.spectra import spectrum

REASONS = ("kept as given", "its features fit {} better", "all rows of its label look like {}")
PCA_DIRECTIONS = 64


@dataclass(frozen=True)
class FBNLL(Repair):
    """FB-NLL: one-shot grouping of sites, and label correction with a few clean rows at the server."""

    name: ClassVar[str] = "fb-nll"
    labels: ClassVar[type[Labels]] = Exact
    groups: int = 1  # number of tasks; 1: no clustering
    M: int = 10  # number of directions compared
    linkage: Linkage = "average"  # between groups of sites
    center: bool = False  # centre the second moments, for studies
    correct: bool = True  # False: FB-NLL(-)
    phase1: Phase1 = "margin"  # relabel whole labels: by margin, by threshold (paper), or not at all (off)
    threshold: float = 0.5  # phase1 = paper: the similarity that exactly one clean class must exceed
    gate: float = 0.05  # share of clean labels that phase 2 may change; 1: the paper
    rank: int = 10  # directions of a clean class in Eq. 7: at most d/4 and 3/4 of its rows; 5 if it has fewer than 20
    features: str = "auto"  # phi for grouping: raw, pca, hog, efficientnet-lite0, module:function
    class_features: str = ""  # phi for correction; empty: the same as features
    known_tasks: tuple[int, ...] = ()  # the task of every class, where known: Eq. 7 then stays within a site's task

    def __post_init__(self) -> None:
        positive("repair", groups=self.groups, M=self.M, rank=self.rank, gate=self.gate)
        if self.gate > 1:
            raise UsageError(f"repair.gate is a share and must be at most 1; got {self.gate:g}")

    @property
    def grouping(self) -> Grouping:
        """The first half of the method."""
        return Grouping(self.groups, self.M, self.linkage, self.center, self.features)

    def correction(self, classes: tuple[str, ...]) -> Correction:
        """Return the second half of the method."""
        phi = self.class_features or self.features
        return Correction(classes, self.M, self.phase1, self.threshold, self.gate, self.rank, phi, self.known_tasks)

    def check(self, federation: Federation) -> None:
        """Refuse data that cannot be repaired, before anything is sent."""
        classes = len(federation.classes)
        if not isinstance(federation.labels, Exact):
            raise UsageError(f"repair {self.name} corrects exact labels; the sites hold {federation.labels.kind}")
        if self.known_tasks and len(self.known_tasks) != classes:
            raise UsageError(
                f"repair.known_tasks must name a task for each of {classes} classes; got {len(self.known_tasks)}"
            )
        if federation.trusted is None and (self.correct or self.uses_pca):
            raise UsageError(f"repair {self.name} needs clean rows at the server: {TO_TRUST}")

    @property
    def uses_pca(self) -> bool:
        """Whether sites need a basis from the server for their features."""
        return "pca" in (self.features, self.class_features)

    def init_server(self, context: ServerView) -> Tree:
        """Return what the server computes from its clean rows, where it has any."""
        server: Tree = {}
        if self.uses_pca:
            assert context.trusted is not None
            server["basis"] = pca_basis(context.trusted.x)
        if self.correct:
            server |= self.correction(context.classes).init_server(context, server.get("basis"))
        return server

    def exchanges(self, classes: tuple[str, ...], trusted: bool) -> tuple[Query, ...]:
        """Return all exchanges but the last."""
        return (
            *((Query("basis", listen, send_basis, respond=keep_basis),) if self.uses_pca else ()),
            *(self.grouping.exchanges() if self.groups > 1 else ()),
            *(self.correction(classes).exchanges() if self.correct else ()),
        )

    def send_findings(self, server: Tree, site: int) -> Tree:
        """Return what a site needs to correct its labels."""
        return self.correction(()).send(server, site) if self.correct else {}

    def decide(self, classes: tuple[str, ...], site: SiteView) -> LabelDecision:
        """Correct a site's labels, or leave them as they are."""
        if self.correct:
            return self.correction(classes).decide(site)
        labels = site.labels.values
        return LabelDecision(labels, torch.ones(len(labels)), torch.full_like(labels, KEPT), math.nan)

    def reasons(self, classes: tuple[str, ...], decision: LabelDecision) -> tuple[str, ...]:
        """Return why each label is what it is, in words."""
        names = [classes[c] for c in decision.decided.tolist()]
        return tuple(REASONS[w].format(c) for w, c in zip(decision.why.tolist(), names, strict=True))

    def groups_of(self, server: Tree) -> tuple[int, ...]:
        """Return the groups of sites that were formed."""
        return tuple(server["groups"].tolist()) if "groups" in server else ()


def listen(server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Leave the server's memory as it is: the sites only receive."""
    return server


def send_basis(server: Tree, site: int) -> Tree:
    """Return the basis of `pca` features."""
    return {"basis": server["basis"]}


def keep_basis(site: SiteView) -> Tree:
    """Keep the basis at the site for its features."""
    site.memory["basis"] = site.down["basis"]
    return {}


def pca_basis(x: Tensor) -> Tensor:
    """Return the leading directions of the second moment of these rows, float32 [d, p]."""
    return spectrum(x.flatten(1).double(), PCA_DIRECTIONS)[1].float()
