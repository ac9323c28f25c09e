"""Whether a repair is supported: what the noise model claims, beside what probes saw that knew no posterior.

    exchange    a site sends                                              the server sends
    witness     nothing                                                   weights of the fit on the labels as given
    support     rows whose label the probe predicts; its surest rows,     with clean rows: the threshold of the gate,
                and how many of these it contradicts; sum of 1 - Q(g);    weights of the fit on the clean rows alone
                with clean rows: labels the fit on these contradicts,
                labels it would change, labels by class, how sure
                both fits are of the rows

Classes that overlap and labels that are wrong look alike to the noise model: what the probe cannot predict, it takes
for noise. The first fit, on the labels as given, is a witness that does not depend on it, as none of its predictions
comes from the row itself. Two things separate noise from overlap.

1. Clear classes. If a share nu of the labels is wrong and the rest are right, a probe that knows the classes predicts
   1 - nu of them, and no fewer among all rows than among those where it is surest. The first is held against the
   claims of the noise model; the second needs none. Both are shares above chance.
2. Even noise. A wrong label is about as frequent where the probe is sure as elsewhere; mistakes that come from
   overlap vanish there, and those that come from outliers gather there. So the labels contradicted among the surest
   fifth of the rows are about as many as the noise: neither far fewer nor far more.

Where one of them fails for all sites together, all labels stay as they are; where far fewer are contradicted at a site,
its labels do. Noise that follows the features fails the second too: nothing in features and labels separates it from
overlap. Clean rows do (B1): a probe contradicts right labels as often at the sites as it contradicts the clean rows, so
that what it contradicts beyond a bound on that is noise, of whatever kind. Two probes are asked, the witness and the
fit on the clean rows alone; neither has seen a posterior, so that clean rows and the sites' rows stand alike before
them. (In the gate they do not: fits on posteriors have been taught the clean rows' classes.) If the noise that clean
rows show is no less than half of the labels to be changed, over all sites and at a site, and the witness is of any use,
the repair is supported there, whatever else fails; if they show none, nothing is. A probe that is less sure of the
sites' rows than of the clean ones is not asked, nor is any where the clean rows lie far outside: clean rows of another
kind, such as other devices', say nothing about them.

The equations of the method are untouched; the constants here were chosen on the made-up and real cases of
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
from imperfed.repairs.posterior.cross_fit import CrossFit, logits, one_hot
from imperfed.repairs.posterior.gates import LEAST_NOISE, gate_of, upper_bound
from imperfed.repairs.posterior.noise_model import joint, leads

CLEAR, CLEARLY = 0.7, 0.95
"""The least share of the labels held to be right that the witness predicts, above chance; and where no more is asked
about outliers."""
CLEAR_BESIDE_CLEAN = 0.6
"""The same where clean rows speak for a repair: if the classes hardly separate, a few clean rows are too few."""
LEVEL, LEVEL_OF_MANY = 0.63, 0.7
"""The least agreement of witness and labels over all rows, as a share of that over the surest rows, above chance; and
where more than half of the labels of the surest rows are contradicted, so that the witness may be what is wrong."""
LIKELY, SURE, SURER = 0.6745, 1.2816, 1.6449
"""Standard errors for which chance is made up three times in four, where clean rows, which have a bound of their own,
show noise; nine times in ten, where noise claimed may be too little; and 19 times in 20, where `LEVEL` is to be
exceeded: of a few hundred rows the surest fifth is too small to show much."""
EVEN_LEAST, EVEN, EVEN_AT_SITE = 0.9, 1.5, 2.5
"""The least and the most noise that is claimed, as a multiple of what is contradicted among the surest rows."""
SHOWN = 2.0
"""The most labels that are changed, as a multiple of the noise that clean rows show."""
ALIKE = 0.1
"""By how much less sure a probe may be of the sites' rows than of clean rows that are to speak for them."""
WIDER = 2.0
"""The mean square of the clean rows' coordinates, at most, as a multiple of that of the sites' rows."""
SUREST = 5
"""One row in so many is among the surest of a site."""
POOLED_ROWS = 20
"""How many rows the mean of all sites counts for at a site."""
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
        return Query("witness", self.fit_clean_rows, self.fit.send_fit, respond=self.keep_predictions)

    def claims(self) -> Query:
        """Return the exchange in which the claims of the noise model are compared with it."""
        return Query("support", self.judge, self.send_clean_fit, respond=self.compare)

    # -- a site ---------------------------------------------------------------------------------------------------

    def keep_predictions(self, site: SiteView) -> Tree:
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
        sent = {name: number.double() for name, number in zip(SUMS, sums, strict=True)}
        return sent | (self.beside_clean(site) if "W" in site.down else {})

    def beside_clean(self, site: SiteView) -> Tree:
        """Return how many labels the fit on the clean rows contradicts, how many the gate changes, labels by class."""
        g, Q = site.labels.values, site.memory["Q"]
        sureness, prediction = torch.softmax(logits(site.memory["A"], site.down["W"]), -1).max(1)
        denied = (prediction != g).sum()
        changes = (leads(Q, g) > gate_of(site.memory["net"], int(site.down["h"]))).sum()
        return {
            "denied": denied.double(),
            "sureness": torch.stack([site.memory["sureness"].sum(), sureness.sum()]),
            "changes": changes.double(),
            "labels": g.bincount(minlength=self.fit.classes).double(),
        }

    # -- the server -----------------------------------------------------------------------------------------------

    def fit_clean_rows(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Fit the clean rows alone, where there are any, and keep which of them either fit contradicts."""
        fitted = self.fit.clean_alone(server, updates, context)
        if "A" not in server:
            return fitted
        astray = torch.stack([tree["logits"].argmax(1) != server["y"] for tree in (server, fitted)])
        sure = [torch.softmax(tree["logits"], -1).max(1).values.mean() for tree in (server, fitted)]
        wider = server["A"].square().sum(1).mean() / (server["curvature"].trace() / server["n"])
        of_clean = {"astray": astray, "sure of clean": torch.stack(sure), "clean is wider": wider}
        return fitted | of_clean | {"W of clean": fitted["W"]}

    def send_clean_fit(self, server: Tree, site: int) -> Tree:
        """Return the fit on the clean rows alone and the threshold of the gate, where there are clean rows."""
        return {"W": server["W of clean"], "h": server["h"]} if "W of clean" in server else {}

    def judge(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Keep all sums as shares, and at which sites the noise claimed is supported."""
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
        overall, surely = below(found["agreement"], rows, SURER), below(found["contradicted"], sure_rows, SURER)
        found["level"] = clarity(overall, surely, self.fit.classes)
        least = EVEN_LEAST * below(found["contradicted"], sure_rows, SURE)
        most = EVEN * found["contradicted"]
        even = ((least <= found["claimed"]) | (found["clear"] >= CLEARLY)) & (found["claimed"] <= most)
        level = torch.where(found["contradicted"] > 0.5, LEVEL_OF_MANY, LEVEL)
        supported = (found["clear"] >= CLEAR) & (found["level"] >= level) & even
        seen = (contradicted + POOLED_ROWS * found["contradicted"]) / (surest + POOLED_ROWS)
        borne_out = supported & (doubted / n <= EVEN_AT_SITE * seen)
        if "astray" in server:
            found["shown"], shown, asked = self.shown(server, updates, predicted)
            borne_out = borne_out & ((found["shown"] > 0) | ~asked)
            borne_out = borne_out | (shown & (found["clear"] >= CLEAR_BESIDE_CLEAN))
        return server | found | {"borne out": borne_out, "quiet": doubted / n < LEAST_NOISE}

    def shown(self, server: Tree, updates: Updates, predicted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the noise that clean rows show at the least, where it bears out the changes, and if they were asked.

        The second is by site.
        """
        n, y, C = updates.n.double().clamp(min=1), server["y"], self.fit.classes
        claims = [torch.stack([answer[name].reshape(()) for answer in updates.parts]) for name in ("denied", "changes")]
        denied, changes = (claim.clamp(min=0).minimum(n) for claim in claims)
        labels = torch.stack([answer["labels"].reshape(C) for answer in updates.parts]).clamp(min=0)
        labels = labels / labels.sum(1, keepdim=True).clamp(min=1)
        contradicted = torch.stack([n - predicted, denied])
        shares = n @ labels / n.sum()
        at_least = below(contradicted.sum(1) / n.sum(), n.sum(), LIKELY)
        pooled = beyond(at_least, contradicted_if_right(server["astray"], y, shares))
        sure = torch.stack([answer["sureness"].reshape(2) for answer in updates.parts]).sum(0) / n.sum()
        alike = (sure >= server["sure of clean"] - ALIKE) & (server["clean is wider"] <= WIDER)
        noise, probe = torch.where(alike, pooled, 0.0).max(0)
        expected = labels @ rates(server["astray"], y, C)[probe]
        own = (n * beyond(contradicted[probe] / n, expected) + POOLED_ROWS * noise) / (n + POOLED_ROWS)
        enough = (noise > 0) & (changes.sum() / n.sum() <= SHOWN * noise)
        return noise.clamp(min=0), enough & (changes / n <= SHOWN * own), alike.any()


def beyond(share: Tensor, expected: Tensor) -> Tensor:
    """Return the share of wrong labels that raises the share contradicted above that of right labels."""
    return (share - expected) / (1 - expected).clamp(min=1e-12)


def rates(astray: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return how often probes contradict clean rows of every class, 1 for a class that has none; [probes, C]."""
    rows = y.bincount(minlength=classes)
    found = one_hot(y, classes).T @ astray.T.double()
    return torch.where(rows[:, None] > 0, found / rows.clamp(min=1)[:, None], 1.0).T


def contradicted_if_right(astray: Tensor, y: Tensor, shares: Tensor) -> Tensor:
    """Return bounds on the share of labels that probes would contradict if all were right; [probes].

    `astray`: which clean rows they contradict, [probes, n]; `shares`: of the classes among the labels. Of a class
    without clean rows nothing is known, so that all its labels might be.
    """
    v = shares[y] / y.bincount(minlength=len(shares))[y]
    known = v.sum().clamp(min=1e-12)
    rows = known.square() / v.square().sum().clamp(min=1e-12)
    bound = upper_bound((astray * v).sum(1) / known, rows)
    return known * bound + (1 - known).clamp(min=0)


def clarity(agreement: Tensor, noise: Tensor, classes: int) -> Tensor:
    """Return the share of right labels that the probe predicts, both above chance; 0 where none are right."""
    chance = 1 / classes
    expected = 1 - chance - noise
    return torch.where(expected > 0, (agreement - chance) / expected.clamp(min=1e-12), 0.0)


def below(share: Tensor, rows: Tensor, errors: float) -> Tensor:
    """Return a share of so many rows, less what chance may have added to it: so many standard errors."""
    return (share - errors * (share * (1 - share) / rows).sqrt()).clamp(min=0)


def verdict(server: Tree, sites: Sequence[str], insist: bool) -> RepairVerdict:
    """Return whether the features support a repair, in figures and in words; `insist`: whether it is made anyway."""
    figures = {name: float(server[name]) for name in (*FIGURES, "shown") if name in server}
    J = joint(server["T"], server["pi"])[0]
    per_cent = {name: f"{100 * share:.{0 if share > 0.1 else 1}f} %" for name, share in figures.items()}
    fine = (server["borne out"] | server["quiet"]).tolist()  # where next to no noise is claimed, nothing is to be said
    alone = tuple(name for name, kept in zip(sites, fine, strict=True) if not kept)
    seen = (
        f"an estimated {per_cent['claimed']} of the labels are wrong; a model of the features predicts "
        f"{per_cent['agreement']} of the labels, and contradicts {per_cent['contradicted']} where it is surest"
    )
    if figures.get("shown"):
        seen = f"{seen}; the clean rows show that at least {per_cent['shown']} are wrong"
    overlap = figures["clear"] < CLEAR or figures["level"] < LEVEL
    if not alone:
        said = "this supports the estimate" if overlap else "the features tell the classes apart"
        return RepairVerdict((), figures, f"{seen}: {said}", J)
    why = "the classes overlap in these features" if overlap else "the features do not support the estimate"
    where = "" if len(alone) == len(sites) else f" at {', '.join(alone[:NAMED])}"
    more = f" and {len(alone) - NAMED} more" if NAMED < len(alone) < len(sites) else ""
    stay = "" if insist else ", and labels there stay as they are" if where else ", and all labels stay as they are"
    return RepairVerdict(alone, figures, f"{seen}: {why}{where}{more}{stay}", J)


def own_verdict(server: Tree, site: int) -> Tree:
    """Return the part of the server's memory from which one site puts its own verdict into words."""
    of_all = {name: server[name] for name in (*FIGURES, "shown", "T", "pi") if name in server}
    return of_all | {name: server[name][site : site + 1] for name in ("borne out", "quiet")}
