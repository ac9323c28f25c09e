"""Posterior repair as a whole: its settings, the exchanges between server and sites, and their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision, Repair, RepairVerdict
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact, Labels, Probabilities
from imperfed.repairs.posterior.axes import MOST, Axes
from imperfed.repairs.posterior.cross_fit import FOLDS, STEPS, CrossFit
from imperfed.repairs.posterior.gates import LeadGate, gate_of, threshold
from imperfed.repairs.posterior.noise_model import NoiseModel, leads
from imperfed.repairs.posterior.support import Support, own_verdict, verdict

ROUNDS_WITH_CLEAN, ROUNDS_WITHOUT = 2, 3
"""How often the probe is fitted on the sites' rows."""
KEPT, CHANGED, DOUBTED, LEFT_ALONE, UNSUPPORTED = range(5)
"""Why a label is what it is."""
REASONS = (
    "the most probable label",
    "{} is more probable",
    "{} is more probable, but not by enough",
    "{} is more probable, but this site is left alone",
    "{} is more probable, but the features do not support it",
)


@dataclass(frozen=True)
class PosteriorRepair(Repair):
    """Change labels where another one is clearly more probable and the features support it; trusted rows help."""

    name: ClassVar[str] = "posterior"
    labels: ClassVar[type[Labels]] = Exact
    reference: ClassVar[bool] = True
    same_bits: ClassVar[bool] = True
    clean_rows: Literal["auto", "ignore"] = "auto"  # auto: use the server's clean rows where it has any
    features: str = "auto"  # phi: raw, hog, efficientnet-lite0, module:function
    insist: bool = False  # also where the features do not support it

    def check(self, federation: Federation) -> None:
        """Refuse data that cannot be repaired, before anything is sent."""
        if not isinstance(federation.labels, Exact):
            raise UsageError(f"repair {self.name} corrects exact labels; the sites hold {federation.labels.kind}")
        if self.features == "pca":
            raise UsageError("repair posterior finds directions of its own: set repair.features = raw instead of pca")

    def uses(self, trusted: bool) -> bool:
        """Return whether clean rows are used (B1), given whether the server has any."""
        return trusted and self.clean_rows == "auto"

    @staticmethod
    def products(rows: int, features: int, classes: int) -> int:
        """Return about how many multiplications all sites and the server make together, without clean rows."""
        axes = rows * features**2 + 10 * features**3  # moments and eigenvectors
        step = 2 * rows * (min(features, MOST) + 1) * FOLDS * classes
        return axes + ROUNDS_WITHOUT * STEPS * step

    def init_server(self, context: ServerView) -> Tree:
        """Return the features of the server's clean rows, where they are used."""
        return Axes(self.features).init_server(context) if self.uses(context.trusted is not None) else {}

    def exchanges(self, classes: tuple[str, ...], trusted: bool) -> tuple[Query, ...]:
        """Return all exchanges but the last."""
        fit, clean = CrossFit(self.features, len(classes)), self.uses(trusted)
        estimate, support = NoiseModel(len(classes), clean).exchanges(), Support(fit)
        begin = (*Axes(self.features).exchanges(), fit.opening(), *fit.exchanges(), support.witness(), *estimate)
        rounds = ROUNDS_WITH_CLEAN if clean else ROUNDS_WITHOUT - 1  # without, the witness is the first of them
        again = (*fit.exchanges(), *estimate) * rounds
        return *begin, *again, *(LeadGate().exchanges() if clean else ()), support.claims()

    def send_findings(self, server: Tree, site: int) -> Tree:
        """Return whether the features support the site's noise, and with clean rows the threshold that was chosen."""
        found = {"borne out": server["borne out"][site]}
        return found | ({"h": server["h"]} if "h" in server else {})

    def verdict(self, server: Tree, sites: Sequence[str]) -> RepairVerdict:
        """Return whether the features support a repair."""
        return verdict(server, sites, self.insist)

    def send_verdict(self, server: Tree, site: int) -> Tree:
        """Return the figures of all sites together, their noise, and whether the features support the site's."""
        return own_verdict(server, site)

    def decide(self, classes: tuple[str, ...], site: SiteView) -> LabelDecision:
        """Change the labels whose lead is above the threshold, Eqs. 24 and 26, where the features support it."""
        Q, g = site.memory["Q"], site.labels.values
        noise = float((1 - Q.gather(1, g[:, None])).mean())
        h, believed = self.least_lead(site, noise), self.insist or bool(site.down["borne out"])
        lead, best = leads(Q, g), Q.argmax(1)
        changed = (lead > h) & believed
        other = LEFT_ALONE if h == torch.inf else DOUBTED if believed else UNSUPPORTED
        why = torch.where(best == g, KEPT, other).masked_fill(changed, CHANGED)
        decided = torch.where(changed, best, g)
        confidence = Q.gather(1, decided[:, None]).flatten().float()
        return LabelDecision(decided, confidence, why, noise, Q, site.memory["J"], believed)

    def least_lead(self, site: SiteView, noise: float) -> float:
        """Return the lead that a change needs at a site, Eqs. 24 and 25."""
        return gate_of(site.memory["net"], int(site.down["h"])) if "h" in site.down else threshold(noise)

    def gives(self, wanted: type[Labels]) -> type[Labels]:
        """Return probabilities where training asks for them."""
        return Probabilities if wanted is Probabilities else Exact

    def reasons(self, classes: tuple[str, ...], decision: LabelDecision) -> tuple[str, ...]:
        """Return why each label is what it is, in words."""
        assert decision.posterior is not None
        names = [classes[c] for c in decision.posterior.argmax(1).tolist()]
        return tuple(REASONS[w].format(c) for w, c in zip(decision.why.tolist(), names, strict=True))
