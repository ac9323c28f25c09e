"""The posterior of candidate sets: which of them probably miss the true class. Nothing is changed.

    exchange    a site sends                                         the server sends
    witness     in how many sets the predicted class is, and in      weights of the first fit
                how many that of a guess would be

The exchanges of posterior repair, with the model of `set_model.py` in place of that of exact labels. Every set stays
as it is: a set that misses the true class could be widened, but by which class is known less well than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision, Repair, RepairVerdict
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Federation
from imperfed.core.labels import Candidates, Labels
from imperfed.repairs.posterior.axes import Axes, total
from imperfed.repairs.posterior.cross_fit import logits
from imperfed.repairs.posterior.posterior import PosteriorRepair
from imperfed.repairs.posterior.set_model import SetFit, SetModel, outside_mass

FITS = 5
"""How often the probe is fitted."""
SEPARATED = 0.4
"""The least share of sets that the first fit hits, above chance, for estimates to be trusted."""
REASONS = (
    "the most probable class is a candidate",
    "a class outside is more probable; the most probable candidate is {}",
)


@dataclass(frozen=True)
class SetPosterior(PosteriorRepair):
    """Candidate sets ranked by the probability that they miss the true class."""

    labels: ClassVar[type[Labels]] = Candidates

    def check(self, federation: Federation) -> None:
        """Refuse other labels, before anything is sent."""
        if not isinstance(federation.labels, Candidates):
            raise UsageError(f"{federation.name}: these are {federation.labels.title}, not {Candidates.title}")
        if self.features == "pca":
            raise UsageError("an audit finds directions of its own: set repair.features = raw instead of pca")

    def uses(self, trusted: bool) -> bool:
        """Return False: the model has no place for clean rows."""
        return False

    def exchanges(self, classes: tuple[str, ...], trusted: bool) -> tuple[Query, ...]:
        """Return all exchanges but the last."""
        fit, estimate = SetFit(self.features, len(classes)), SetModel(len(classes)).exchanges()
        witness = Query("witness", keep_shares, fit.send_fit, respond=count_hits)
        again = (*fit.exchanges(), *estimate) * (FITS - 1)
        return (*Axes(self.features).exchanges(), fit.opening(), *fit.exchanges(), witness, *estimate, *again)

    def send_findings(self, server: Tree, site: int) -> Tree:
        """Return nothing: there is nothing to decide."""
        return {}

    def decide(self, classes: tuple[str, ...], site: SiteView) -> LabelDecision:
        """Keep every set, with its posterior."""
        S, Q = site.labels.values, site.memory["Q"]
        suspicion, best = outside_mass(Q, S), Q.argmax(1, keepdim=True)
        why = 1 - S.gather(1, best).flatten().long()
        return LabelDecision(S, (1 - suspicion).float(), why, float(suspicion.mean()), Q, believed=False)

    def reasons(self, classes: tuple[str, ...], decision: LabelDecision) -> tuple[str, ...]:
        """Return whether the most probable class is a candidate, and else which candidate is, in words."""
        assert decision.posterior is not None
        best = (decision.posterior * decision.decided).argmax(1).tolist()
        return tuple(REASONS[w].format(classes[c]) for w, c in zip(decision.why.tolist(), best, strict=True))

    def verdict(self, server: Tree, sites: Sequence[str]) -> RepairVerdict:
        """Return whether the features separate the classes."""
        agreement, chance = float(server["hit"]), float(server["chance"])
        clear = (agreement - chance) / max(1 - chance, 1e-12)
        seen = (
            f"the class that the features predict is a candidate in {agreement:.0%} of the sets, {chance:.0%} by chance"
        )
        alone = () if clear >= SEPARATED else tuple(sites)
        return RepairVerdict(alone, {"agreement": agreement, "clear": clear}, seen)

    def send_verdict(self, server: Tree, site: int) -> Tree:
        """Return the figures of all sites together."""
        return {name: server[name] for name in ("hit", "chance")}

    def gives(self, wanted: type[Labels]) -> type[Labels]:
        """Return the kind that the sites hold."""
        return Candidates


def suited(repair: Repair, kind: type[Labels]) -> Repair:
    """Return the form in which a repair judges labels of this kind: itself, unless these are candidate sets."""
    plain = type(repair) is PosteriorRepair and kind is Candidates
    return SetPosterior(**asdict(repair)) if plain else repair


def count_hits(site: SiteView) -> Tree:
    """Return in how many sets the class is that the first fit predicts, and a class drawn at random would be."""
    S = site.labels.values.double()
    predicted = logits(site.memory["A"], site.down["W"]).argmax(1, keepdim=True)
    return {"hit": S.gather(1, predicted).sum(), "chance": S.mean(1).sum()}


def keep_shares(server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Keep both as shares of all sets."""
    sums = {name: total(updates, name).clamp(min=0).minimum(server["n"]) for name in ("hit", "chance")}
    return server | {name: number / server["n"] for name, number in sums.items()}
