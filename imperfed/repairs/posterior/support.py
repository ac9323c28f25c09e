"""Whether the features support a repair: what the noise model claims, beside what a probe saw that knew no posterior.

    exchange    a site sends                                              the server sends
    witness     nothing                                                   weights of the fit on the labels as given
    support     rows whose label the probe predicts; its surest rows,     nothing
                and how many of these it contradicts; sum of 1 - Q(g)

Classes that overlap and labels that are wrong look alike to the noise model: what the probe cannot predict, it takes
for noise. The first fit, on the labels as given, is a witness that does not depend on it, as none of its predictions
comes from the row itself. Two things tell noise from overlap.

1. Clear classes. If a share nu of the labels is wrong and the rest are right, a probe that knows the classes predicts
   1 - nu of them, and no fewer among all rows than among those where it is surest. The first is held against the
   claims of the noise model; the second needs none. Both are shares above chance.
2. Even noise. A wrong label is about as frequent where the probe is sure as elsewhere; mistakes that come from
   overlap vanish there. So the labels contradicted among the surest fifth of the rows bound the noise.

Where one of them fails for all sites together, all labels stay as they are; where the second fails at a site, its
labels do. Noise that follows the features fails it too: nothing in features and labels tells it from overlap. The
equations of the method are untouched; the constants here were chosen on the made-up and real cases of
`studies/no_harm.py`, and looked at once on others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import RepairVerdict
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.posterior.cross_fit import CrossFit, logits
from imperfed.repairs.posterior.gates import LEAST_NOISE
from imperfed.repairs.posterior.noise_model import joint

CLEAR = 0.7
"""The least share of the labels held to be right that the witness predicts, above chance."""
LEVEL = 0.6
"""The least agreement of witness and labels over all rows, as a share of that over the surest rows, above chance."""
SURE = 1.2816
"""Standard errors by which `LEVEL` is to be exceeded: nine times in ten, chance alone does not help that far."""
EVEN, EVEN_AT_SITE = 1.35, 1.75
"""The most noise that is claimed, as a multiple of what is contradicted among the surest rows."""
SUREST = 5
"""One row in so many is among the surest of a site."""
POOLED_ROWS = 20
"""How many rows the surest rows of all sites count for at a site."""
SUMS = ("predicted", "surest", "contradicted", "doubted")
FIGURES = ("agreement", "claimed", "contradicted", "clear", "level")
"""What the verdict rests on."""
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
        rows, sure_rows = n.sum(), surest.sum().clamp(min=1)
        found = {
            "agreement": predicted.sum() / rows,
            "claimed": doubted.sum() / rows,
            "contradicted": contradicted.sum() / sure_rows,
        }
        found["clear"] = clarity(found["agreement"], found["claimed"], self.fit.classes)
        least = [below(found["agreement"], rows), below(found["contradicted"], sure_rows)]
        found["level"] = clarity(least[0], least[1], self.fit.classes)
        even = found["claimed"] <= EVEN * found["contradicted"]
        supported = (found["clear"] >= CLEAR) & (found["level"] >= LEVEL) & even
        seen = (contradicted + POOLED_ROWS * found["contradicted"]) / (surest + POOLED_ROWS)
        borne_out = supported & (doubted / n <= EVEN_AT_SITE * seen)
        return server | found | {"borne out": borne_out, "quiet": doubted / n < LEAST_NOISE}


def clarity(agreement: Tensor, noise: Tensor, classes: int) -> Tensor:
    """Return the share of right labels that the probe predicts, both above chance; 0 where none are right."""
    chance = 1 / classes
    expected = 1 - chance - noise
    return torch.where(expected > 0, (agreement - chance) / expected.clamp(min=1e-12), 0.0)


def below(share: Tensor, rows: Tensor) -> Tensor:
    """Return a share of so many rows, less what chance may have added to it."""
    return (share - SURE * (share * (1 - share) / rows).sqrt()).clamp(min=0)


def verdict(server: Tree, sites: Sequence[str], insist: bool) -> RepairVerdict:
    """Return whether the features support a repair, in figures and in words; `insist`: whether it is made anyway."""
    figures, J = {name: float(server[name]) for name in FIGURES}, joint(server["T"], server["pi"])[0]
    per_cent = {name: f"{100 * share:.{0 if share > 0.1 else 1}f} %" for name, share in figures.items()}
    fine = (server["borne out"] | server["quiet"]).tolist()  # where next to no noise is claimed, nothing is to be said
    alone = tuple(name for name, kept in zip(sites, fine, strict=True) if not kept)
    seen = (
        f"the features predict {per_cent['agreement']} of the labels and contradict {per_cent['contradicted']} where "
        f"they are surest, and {per_cent['claimed']} are wrong by the estimate"
    )
    if not alone:
        return RepairVerdict((), figures, f"{seen}: they tell the classes apart", J)
    overlap = figures["clear"] < CLEAR or figures["level"] < LEVEL
    why = "the classes overlap in these features" if overlap else "they do not bear that out"
    where = "" if len(alone) == len(sites) else f" at {', '.join(alone[:NAMED])}"
    more = f" and {len(alone) - NAMED} more" if NAMED < len(alone) < len(sites) else ""
    stay = "" if insist else ", and labels there stay as they are" if where else ", and all labels stay as they are"
    return RepairVerdict(alone, figures, f"{seen}: {why}{where}{more}{stay}", J)


def own_verdict(server: Tree, site: int) -> Tree:
    """Return the part of the server's memory from which `verdict` tells one site about itself."""
    of_all = {name: server[name] for name in (*FIGURES, "T", "pi")}
    return of_all | {name: server[name][site : site + 1] for name in ("borne out", "quiet")}
