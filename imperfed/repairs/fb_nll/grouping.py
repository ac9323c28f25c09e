"""FB-NLL's first half: which sites have the same task, from directions of their features (Algorithm 1, steps 2-14).

    step        a site sends                               the server does
    directions  V: its first M directions (Eq. 2)          sends everybody's V to everybody
    scores      r: R_{i<-j} for every j (Eq. 3-5)          forms groups from R_ij (Eq. 6)

The eigenvalues and the second moment never leave their site. A site with fewer than max(M, 10) rows sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.repairs.fb_nll.clusters import Linkage, cluster
from imperfed.repairs.fb_nll.spectra import moments_of, relevance, similarity, spectrum
from imperfed.repairs.features import phi
from imperfed.repairs.protocol import RepairStep, View, fewest


@dataclass(frozen=True)
class Grouping:
    """One-shot clustering of sites into as many groups as there are tasks."""

    groups: int
    M: int
    linkage: Linkage
    center: bool
    features: str

    def steps(self) -> tuple[RepairStep, ...]:
        """Its part of the conversation."""
        return RepairStep("directions", self.directions, self.pass_on), RepairStep("scores", self.scores, self.form)

    # -- a site ---------------------------------------------------------------------------------------------------

    def directions(self, view: View, received: Tree) -> Tree:
        """A site's own first M."""
        if len(view.x) < fewest(self.M):
            return {}
        view.memory["lambda"], V = spectrum(phi(self.features, view, received), self.M, self.center)  # Eq. 2
        return {"V": V.float()}

    def scores(self, view: View, received: Tree) -> Tree:
        """R_{i<-j} of this site i for every site j that sent its directions."""
        if "lambda" not in view.memory:
            return {}
        F = moments_of(phi(self.features, view, received), self.center)
        return {"r": relevance(F, view.memory["lambda"], received["V"].double()).float()}  # Eq. 3-5

    # -- the server -----------------------------------------------------------------------------------------------

    def pass_on(self, server: Tree, answers: tuple[Tree, ...]) -> tuple[Tree, tuple[Tree, ...]]:
        """Everybody's directions to everybody who sent some."""
        who = [k for k, answer in enumerate(answers) if answer]
        if self.groups > len(who):
            raise UsageError(
                f"repair.groups is {self.groups}, but only {len(who)} sites have the {fewest(self.M)} rows it takes"
            )
        V = torch.stack([answers[k]["V"] for k in who])
        return server | {"who": torch.tensor(who)}, tuple({"V": V} if answer else {} for answer in answers)

    def form(self, server: Tree, answers: tuple[Tree, ...]) -> tuple[Tree, tuple[Tree, ...]]:
        """Hierarchical clustering; a site that sent nothing joins the largest group."""
        one_sided = torch.stack([answers[k]["r"] for k in server["who"].tolist()]).double()
        R = similarity(one_sided, one_sided.T).nan_to_num(0).clamp(0, 1)  # Eq. 6; scores are claims
        found = cluster(R, self.groups, self.linkage)
        groups = found.mode().values.repeat(len(answers)).index_copy(0, server["who"], found)
        return server | {"R": R, "groups": groups}, ({},) * len(answers)
