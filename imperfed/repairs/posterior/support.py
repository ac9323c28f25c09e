"""Whether the features support a repair: what the noise model claims, beside what a probe saw that knew no posterior.

    exchange    a site sends                                              the server sends
    witness     nothing                                                   weights of the fit on the labels as given
    support     rows whose label the probe predicts; its surest rows,     nothing
                and how many of these it contradicts; sum of 1 - Q(g)

Classes that overlap and labels that are wrong look alike to the noise model: what the probe cannot predict, it takes
for noise. The first fit, on the labels as given, is a witness that does not depend on it, as none of its predictions
comes from the row itself. Two things tell noise from overlap.

1. Clear classes. If a share nu of the labels is wrong and the rest are right, a probe that knows the classes predicts
   1 - nu of them. What it predicts of that, both above chance, is how well the features tell the classes apart.
2. Even noise. A wrong label is about as frequent where the probe is sure as elsewhere; mistakes that come from
   overlap vanish there. So the labels contradicted among the surest fifth of a site's rows bound its noise.

Where the first does not hold, all labels stay as they are; where the second fails at a site, its labels do. Noise that
follows the features fails it too: nothing in features and labels tells it from overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import Verdict
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.posterior.cross_fit import CrossFit, logits

CLEAR = 0.7
"""The least share of the labels held to be right that the witness predicts, above chance."""
EVEN = 1.75
"""The most noise that is claimed at a site, as a multiple of what is contradicted among its surest rows."""
SUREST = 5
"""One row in so many is among the surest of a site."""
POOLED_ROWS = 20
"""How many rows the surest rows of all sites count for at a site."""
SUMS = ("predicted", "surest", "contradicted", "doubted")
NAMED = 5
"""How many sites a sentence names."""


@dataclass(frozen=True)
class Support:
    """The exchange after the fit on the labels as given, and the one before the decision."""

    fit: CrossFit

    def witness(self) -> Query:
        """Return the exchange in which sites keep what the fit on the labels as given says of their rows."""
        return Query("witness", self.fit.clean_alone, self.fit.send_fit, respond=self.testify)

    def claims(self) -> Query:
        """Return the exchange in which the claims of the noise model are compared with it."""
        return Query("support", self.judge, respond=self.compare)

    def testify(self, site: SiteView) -> Tree:
        """Keep the class that the probe predicts for every row, and how sure it is."""
        p = torch.softmax(logits(site.memory["A"], site.down["W"]), -1)
        site.memory["sureness"], site.memory["prediction"] = p.max(1)
        return {}

    def compare(self, site: SiteView) -> Tree:
        """Return how many labels were predicted, and contradicted among the surest rows; and the noise claimed."""
        g, prediction = site.labels.values, site.memory["prediction"]
        surest = site.memory["sureness"].argsort(descending=True, stable=True)[: math.ceil(len(g) / SUREST)]
        contradicted = (prediction != g)[surest].sum()
        doubted = (1 - site.memory["Q"].gather(1, g[:, None])).sum()
        sums = ((prediction == g).sum(), torch.tensor(len(surest)), contradicted, doubted)
        return {name: number.double() for name, number in zip(SUMS, sums, strict=True)}

    def judge(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Keep all sums as shares, and at which sites the noise claimed is borne out."""
        n = updates.n.double().clamp(min=1)
        sums = torch.stack([torch.stack([answer[name].reshape(()) for name in SUMS]) for answer in updates.parts])
        sums = sums.clamp(min=0).minimum(n[:, None])  # counts of rows, whatever a site claims
        predicted, surest, contradicted, doubted = sums.T
        pooled = contradicted.sum() / surest.sum().clamp(min=1)
        seen = (contradicted + POOLED_ROWS * pooled) / (surest + POOLED_ROWS)
        found = {"agreement": predicted.sum() / n.sum(), "claimed": doubted.sum() / n.sum(), "contradicted": pooled}
        clear = clarity(found, self.fit.classes)
        return server | found | {"clear": clear, "borne out": (doubted / n <= EVEN * seen) & (clear >= CLEAR)}


def clarity(found: Tree, classes: int) -> Tensor:
    """Return the share of the labels held to be right that the probe predicts, both above chance; 0 where none is."""
    chance = 1 / classes
    predicted, expected = found["agreement"] - chance, 1 - chance - found["claimed"]
    return torch.where(expected > 0, predicted / expected.clamp(min=1e-12), 0.0)


def verdict(server: Tree, sites: Sequence[str], insist: bool) -> Verdict:
    """Return whether the features support a repair, in figures and in words; `insist`: whether it is made anyway."""
    figures = {name: float(server[name]) for name in ("agreement", "claimed", "contradicted", "clear")}
    alone = tuple(name for name, kept in zip(sites, server["borne out"].tolist(), strict=True) if not kept)
    predicted = (
        f"the features predict {100 * figures['agreement']:.0f} % of the labels, and {100 * (1 - figures['claimed']):.0f}"
        " % are right by the estimate"
    )
    stay = "" if insist else ", where labels stay as they are"
    if figures["clear"] < CLEAR:
        return Verdict(alone, figures, f"{predicted}: the classes overlap in these features{stay}")
    if not alone:
        return Verdict((), figures, f"{predicted}: they tell the classes apart")
    where = "all sites" if len(alone) == len(sites) else ", ".join(alone[:NAMED])
    more = f" and {len(alone) - NAMED} more" if NAMED < len(alone) < len(sites) else ""
    contradicted = (
        f"the features contradict {100 * figures['contradicted']:.1f} % of the labels where they are surest, and "
        f"{100 * figures['claimed']:.1f} % of all are wrong by the estimate"
    )
    return Verdict(alone, figures, f"{contradicted}: they do not bear it out at {where}{more}{stay}")
