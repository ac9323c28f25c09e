"""The part of a run's summary about what `auto` tried, chose and brought."""

from __future__ import annotations

from typing import Any

from msgspec import field

from imperfed.results.part import Part, WholeFile


class TrialSummary(Part, frozen=True):
    """One combination that `auto` tried."""

    method: str
    model: str
    settings: dict[str, Any]
    rounds: int
    """The rounds that it was given."""
    best_round: int
    score: float | None
    """On the rows held out; None if it failed."""
    failure: str = ""


class SiteMixture(Part, frozen=True):
    """What one site predicts with: `weight` of the federated model, and the rest of its own."""

    site: str
    weight: float
    alone: str = ""
    """The family of its own model; empty if it has none."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of that family."""
    score: float | None = None
    """Of its own model on the rows that it holds out."""
    value: float | None = None
    """Of its own model on its test rows: the leading figure."""


class Gain(Part, frozen=True):
    """What the models delivered reach beyond the best that sites do alone: means over sites on the same rows."""

    figure: str
    delivered: float
    alone: float
    low: float
    """The 95 % interval of the difference, from a paired bootstrap over rows."""
    high: float
    n: int
    rows: str
    """Which rows: test rows, or rows held out, on which the choice itself was made."""
    labels: str = ""
    """From which labels the models alone learned, if others were corrected; no site could correct them alone."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


class LabelCheck(Part, frozen=True):
    """Whether labels were corrected before the search of `auto`."""

    repair: str = ""
    """The repair that was made; empty: labels are as given."""
    corrected: int = 0
    labels: int = 0
    """Those that were looked at: of all training rows."""
    words: str = ""
    """What the repair found about itself, or why none was made."""
    predicted: float = 0.0
    """The share of the labels as given that the features predict, each without the row itself."""

    def sentence(self) -> str:
        """Return what was done to the labels; empty if nothing was."""
        if not self.corrected:
            return ""
        why = f" ({self.words})" if self.words else ""
        share = f"{100 * self.corrected / self.labels:.0f} %"
        return f"Before the search {self.corrected} of {self.labels} labels ({share}) were corrected{why}."


class AutoSummary(WholeFile, frozen=True):
    """What `auto` tried, chose and brought."""

    method: str
    model: str
    settings: dict[str, Any]
    rounds: int
    federated: bool
    """Whether anything that the chosen method trains leaves its site."""
    budget: float
    """In minutes."""
    combinations: int
    """How many there were; `trials` are those that fitted the budget, the first ones in a fixed order."""
    rungs: tuple[int, ...]
    """The rounds after which a third of the trials went on, and the last one that they had."""
    held_out: float
    """The share of its rows that each site held out during the search; the models delivered are trained on all."""
    temperature: float
    """What the federated model's logits are divided by before they are mixed with a site's own model."""
    trials: tuple[TrialSummary, ...]
    sites: tuple[SiteMixture, ...]
    gain: Gain | None = None
    """None if nothing can be compared."""
    alone_left_out: str = ""
    """Why sites fitted no models alone."""
    held_out_rows: int = 0
    """The rows held out at all sites together."""
    mixture_temperature: float = 1.0
    """What the logits of the mixtures are divided by, fitted on the same rows."""
    cut_short: bool = False
    """Whether an emergency limit on time ended the search, so that another run may choose otherwise."""
    consensus: bool = False
    """Whether trials were judged by what all of them agree on: candidate sets follow the inputs and say too little."""
    label_check: LabelCheck = LabelCheck()

    @property
    def alone_only(self) -> bool:
        """Whether no site's predictions use anything from other sites."""
        return not self.federated or all(site.weight == 0 for site in self.sites)

    def sentence(self) -> str:
        """Return what federating brought, and what was done to labels before."""
        given = self.alone_only and self.label_check.corrected
        models = f"Every site is given {self.own_model}, with the corrected labels." if given else ""
        return " ".join(filter(None, (self.brought(), models, self.label_check.sentence())))

    @property
    def own_model(self) -> str:
        """What a site is given that does best alone, in words."""
        return "the model that it fits to its own rows" if self.federated else "the network that it trains alone"

    def brought(self) -> str:
        """Return what federating brought."""
        if self.gain is None:
            why = f": {self.alone_left_out}" if self.alone_left_out else ", since there are no rows to compare on"
            return f"What federating brings over the best that sites do alone was not measured{why}."
        gain, alone = self.gain, f"the best that sites do alone{self.gain.labels and ' ' + self.gain.labels}"
        if self.alone_only and not self.label_check.corrected:
            return (
                "Sites do best alone: federating brought nothing on rows held out, and every site is given "
                f"{self.own_model} ({gain.figure}, mean over sites, {100 * gain.delivered:.1f} %, "
                f"n = {gain.n} {gain.rows})."
            )
        against = f"{gain.figure}, mean over sites, {100 * gain.delivered:.1f} % against {100 * gain.alone:.1f} %"
        interval = f"95 % interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f} points, n = {gain.n} {gain.rows}"
        points = 100 * (gain.delivered - gain.alone)
        if not gain.clear:
            return f"What federating brings over {alone} is not clear: {against} ({interval})."
        if points > 0:
            return f"Federating brought {points:.1f} points over {alone}: {against} ({interval})."
        return f"Federating cost {-points:.1f} points compared with {alone}: {against} ({interval})."
