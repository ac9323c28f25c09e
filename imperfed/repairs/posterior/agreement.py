"""How far features and labels agree before any repair: the probe's predictions against the labels as given.

    exchange    a site sends                                         the server sends
    agreement   rows whose label the probe predicts                  weights of the fit on the labels as given

A noise of nu leaves 1 - nu of the labels right, and features that tell the classes apart predict these. Where the
probe predicts far fewer, the noise that an EM algorithm finds is not that of the labels: classes overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.posterior.axes import Axes, total
from imperfed.repairs.posterior.cross_fit import CrossFit, logits


@dataclass(frozen=True)
class LabelAgreement:
    """A fit on the labels as given, and how many of them it predicts for rows that it did not see."""

    features: str
    classes: int

    def exchanges(self) -> Sequence[Query]:
        """Return its exchanges."""
        fit = CrossFit(self.features, self.classes)
        count = Query("agreement", self.add_up, self.send_weights, respond=self.predicted)
        return *Axes(self.features).exchanges(), fit.opening(), *fit.exchanges(), count

    def predicted(self, site: SiteView) -> Tree:
        """Return the number of rows whose label the probe predicts."""
        best = logits(site.memory["A"], site.down["W"]).argmax(1)
        return {"predicted": (best == site.labels.values).sum()}

    def send_weights(self, server: Tree, site: int) -> Tree:
        """Return the weights of the fit."""
        return {"W": server["W"]}

    def add_up(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return the share of all labels that the probe predicts."""
        return server | {"agreement": total(updates, "predicted") / server["n"]}
