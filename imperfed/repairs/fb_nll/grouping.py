"""FB-NLL's first half: which sites have the same task, from directions of their features (Algorithm 1, steps 2-14).

    exchange    a site sends                               the server does
    directions  V: its first M directions (Eq. 2)          sends every site's V to every site
    scores      r: R_{i<-j} for every j (Eq. 3-5)          forms groups from R_ij (Eq. 6)

The eigenvalues and the second moment never leave their site. A site with fewer than max(M, 10) rows sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.fb_nll.clusters import Linkage, cluster
from imperfed.repairs.fb_nll.spectra import fewest, moments_of, relevance, similarity, spectrum
from imperfed.repairs.features import phi


@dataclass(frozen=True)
class Grouping:
    """One-shot clustering of sites into as many groups as there are tasks."""

    groups: int
    M: int
    linkage: Linkage
    center: bool
    features: str

    def exchanges(self) -> tuple[Query, ...]:
        """Return its exchanges."""
        return (
            Query("directions", self.collect, respond=self.directions, partial=True),
            Query("scores", self.form, self.pass_on, respond=self.scores, partial=True),
        )

    # -- a site ---------------------------------------------------------------------------------------------------

    def directions(self, site: SiteView) -> Tree:
        """Return a site's own first M directions."""
        if len(site.x) < fewest(self.M):
            return {}
        site.memory["lambda"], V = spectrum(phi(self.features, site), self.M, self.center)  # Eq. 2
        return {"V": V.float()}

    def scores(self, site: SiteView) -> Tree:
        """Return R_{i<-j} of this site i for every site j that sent its directions."""
        if "lambda" not in site.memory:
            return {}
        F = moments_of(phi(self.features, site), self.center)
        return {"r": relevance(F, site.memory["lambda"], site.down["V"].double()).float()}  # Eq. 3-5

    # -- the server -----------------------------------------------------------------------------------------------

    def collect(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Store the directions and which sites sent them."""
        who = [k for k, answer in enumerate(updates.parts) if answer]
        if self.groups > len(who):
            raise UsageError(
                f"repair.groups is {self.groups}, but only {len(who)} sites have the {fewest(self.M)} rows it needs"
            )
        return server | {"who": torch.tensor(who), "V": torch.stack([updates.parts[k]["V"] for k in who])}

    def pass_on(self, server: Tree, site: int) -> Tree:
        """Return all directions, for every site that sent its own."""
        return {"V": server["V"]} if site in server["who"] else {}

    def form(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Cluster hierarchically; a site that sent nothing joins the largest group."""
        one_sided = torch.stack([updates.parts[k]["r"] for k in server["who"].tolist()]).double()
        R = similarity(one_sided, one_sided.T).nan_to_num(0).clamp(0, 1)  # Eq. 6; scores are claims
        clusters = cluster(R, self.groups, self.linkage)
        groups = clusters.mode().values.repeat(len(updates.parts)).index_copy(0, server["who"], clusters)
        return server | {"R": R, "groups": groups}
