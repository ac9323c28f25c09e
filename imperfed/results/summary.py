"""The summary of a run: everything that `summary.json` holds, as types.

The names of the fields are the keys of the file, except for `global` and `class`, which are reserved in Python. What
does not apply to a run (a repair, a target, fairness, ...) is left out of the file; a figure that applies but is
undefined, such as the accuracy of a site without test rows, is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field

from imperfed.evaluation.evaluator import RepairFigures
from imperfed.evaluation.fairness import FairnessSummary
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.results.part import Part, WholeFile
from imperfed.results.prediction_figures import CalibrationSummary, PredictionSummary
from imperfed.results.privacy_summary import PrivacySummary

# -- figures -----------------------------------------------------------------------------------------------------------


class OverSites(Part, frozen=True):
    """The leading figure over the sites that have one; None if none has."""

    mean: float | None
    weighted: float | None
    """The mean weighted by test rows."""
    worst: float | None
    n: int
    """The number of test rows, each counted once."""

    @classmethod
    def of(cls, scores: Sequence[tuple[float, int]], same_rows: bool = False) -> OverSites:
        """Combine the values of sites, each with its number of test rows; values that are not finite are skipped.

        `same_rows`: whether all sites are tested on the same rows, which count once.
        """
        measured = [(value, n) for value, n in scores if math.isfinite(value)]
        if not measured:
            return cls(None, None, None, 0)
        total = sum(n for _, n in measured)
        return cls(
            mean=math.fsum(value for value, _ in measured) / len(measured),
            weighted=math.fsum(value * n for value, n in measured) / total,
            worst=min(value for value, _ in measured),
            n=max(n for _, n in measured) if same_rows else total,
        )


class GlobalFigure(Part, frozen=True):
    """A figure of the global model on the common test set or on validation rows."""

    value: float | None
    n: int


class ValidationSummary(Part, frozen=True):
    """The best round by the rows that the sites hold out from training."""

    figure: str
    """The name of the score, which depends on the kind of labels."""
    round: int
    """The best round; 0 if the rows held out say nothing."""
    score: float | None
    """The score of that round: the mean over sites, weighted by how much their rows say."""
    rows: int
    """The number of rows held out."""
    kept: bool
    """Whether models, labels and figures are those of the best round; otherwise of the last one."""
    early: bool
    """Whether the run ended before its last round, because no later round was better."""

    def sentence(self, rounds: int) -> str:
        """Return which round was best, and why the run ended, after so many rounds."""
        if not self.round:
            return f"the {self.rows} rows held out say nothing about any model, so the last round is kept"
        score = "" if self.score is None else f" ({self.figure} {100 * self.score:.2f} %)"
        best = f"best of {rounds} rounds by {self.rows} rows held out: round {self.round}{score}"
        results = "the results are those of that round" if self.kept else "the results are those of the last round"
        return f"{best}; {results}{'; ended early, since no later round was better' if self.early else ''}"


class SiteSummary(Part, frozen=True, omit_defaults=True):
    """One site."""

    site: str
    train: int
    """The number of training rows."""
    test: int
    value: float | None
    """The leading figure on the site's test rows."""
    labels: float | None
    """The share of its labels resolved correctly or, if labels are missing, the AUROC of those filled in."""
    auroc_annotated: float | None = None
    """The mean over the classes that the site annotates, if labels are missing."""
    auroc_never_annotated: float | None = None
    """The mean over the classes that only other sites annotate."""


class ClassSummary(Part, frozen=True):
    """One class of a run with missing labels; each AUROC is a mean over sites."""

    name: str = field(name="class")
    annotated_at: tuple[str, ...]
    """The sites that annotate it."""
    annotations: int
    """The number of training rows annotated for it."""
    positives: int
    auroc: float | None
    auroc_annotated: float | None
    """Over the sites that annotate the class."""
    auroc_never_annotated: float | None
    """Over the other sites."""


# -- labels ------------------------------------------------------------------------------------------------------------


class ResolvedLabels(Part, frozen=True, tag_field="kind", tag="candidates"):
    """Ambiguous labels from which one class was chosen per training row; figures are None if the truth is unknown."""

    accuracy: float | None
    picking_at_random: float
    """The expected accuracy of a random choice among the classes that each label names."""
    mean_confidence: float
    n: int
    """The number of training rows."""
    together: tuple[tuple[int, ...], ...]
    """[class][class]: the number of labels, such as candidate sets, that name both."""
    mistaken: tuple[tuple[int, ...], ...] | None
    """[true class][chosen class]: the number of labels resolved wrongly."""

    @property
    def leading(self) -> float | None:
        """The figure shown in comparisons."""
        return self.accuracy


class FilledLabels(Part, frozen=True, tag_field="kind", tag="missing"):
    """Missing labels that were filled in; figures are None if the truth is unknown."""

    filled_in: int
    """The number of missing labels of classes that some site annotates."""
    mean_confidence: float
    accuracy: float | None
    """The share that is correct with a threshold of 0.5."""
    always_absent: float | None
    """The share that would be correct if every missing label were taken as absent."""
    auroc: float | None
    n: int
    """The number of filled-in labels whose truth is known."""

    @property
    def leading(self) -> float | None:
        """The figure shown in comparisons."""
        return self.auroc


LabelSummary = ResolvedLabels | FilledLabels
"""The figures of the inferred labels; `kind` distinguishes the two in the file."""


# -- repair and defence ------------------------------------------------------------------------------------------------


class Traffic(Part, frozen=True):
    """Bytes between the sites and the server."""

    up: int
    down: int


class MixUp(Part, frozen=True):
    """A class that a site takes for another, as a repair estimates it."""

    true: str
    given: str
    share: float
    """Of the site's rows that are truly of the class, how many have the other label."""
    rows: float
    """The expected number of such rows."""


class RepairedSite(Part, frozen=True, omit_defaults=True):
    """One site of a repair."""

    site: str
    group: int
    noise_estimate: float | None
    """The share of wrong labels that the site estimates for itself."""
    figures: RepairFigures | None
    """None if the truth is unknown."""
    mixed_up: tuple[MixUp, ...] | None = None
    """The classes most often taken for others; None if the repair does not estimate it."""


class RepairSummary(Part, frozen=True):
    """The changes that a repair made to the labels before training."""

    name: str
    n: int
    """The number of labels."""
    changed: int
    figures: RepairFigures | None
    """None if the truth is unknown."""
    groups: int
    """The number of groups of sites, each with its own model."""
    adjusted_rand_index: float | None
    """Of the groups against the sites' tasks; None if sites have no tasks."""
    sent: dict[str, tuple[int, ...]]
    """Name and shape of everything that a site sent."""
    bytes: Traffic
    sites: tuple[RepairedSite, ...]
    support: str = ""
    """Whether the data support the repair, in words; empty where it does not check."""
    left_alone: tuple[str, ...] = ()
    """The sites whose labels stay because they do not."""


class LeftOut(Part, frozen=True):
    """A site that a defence excludes at the end of a run."""

    site: str
    since: int
    """The first round of the unbroken exclusion."""
    score: float | None
    """The score that speaks against it in its last round; None if undefined."""
    confidence: float
    """The server's confidence in it in its last round."""
    by: str = ""
    """Which of several defences exclude it; empty where the run has one."""


class DefenceSummary(Part, frozen=True):
    """The sites excluded by a defence that judges single sites."""

    out: tuple[LeftOut, ...]
    """Excluded at the end, in order of the rounds."""
    ever_out: tuple[str, ...]
    false_alarms: tuple[str, ...] | None = None
    """Honest sites excluded at the end; None if the adversaries are unknown."""
    missed: tuple[str, ...] | None = None
    """Adversaries not excluded at the end."""


# -- data --------------------------------------------------------------------------------------------------------------


class DataFacts(Part, frozen=True, kw_only=True, omit_defaults=True):
    """The data in numbers: of training rows unless stated otherwise; None if a fact does not apply."""

    labels: str
    """The kind of labels that the sites hold."""
    rows: tuple[int, ...]
    """By site."""
    test_rows: tuple[int, ...]
    """By site."""
    common_test_rows: int
    """The number of rows of the common test set, which belongs to no site."""
    rows_left_out: int
    """Rows of the dataset that no site holds."""
    public_rows: int
    """Unlabelled inputs at the server."""
    public_from: str = "nowhere"
    trusted_rows: int = 0
    """Labelled rows at the server."""
    validation_rows: int = 0
    """Labelled rows of no site, on which settings are chosen."""
    held_out_rows: tuple[int, ...] | None = None
    """Rows that each site holds out from training, to judge rounds by."""
    common_test: bool = False
    """Whether every site is evaluated on the common test set."""
    examples: int | None = None
    """The number of distinct examples, if an example appears once for each of its labels, at different sites."""
    counts: tuple[tuple[int, ...], ...] | None = None
    """[true class][site]: rows."""
    classes_at_nobody: tuple[str, ...] = ()
    """Classes that occur at no site."""
    most_frequent: dict[str, float] | None = None
    """Figures of always predicting the most frequent labels."""
    sites_not_used: int | None = None
    """The number of sites named in the dataset, if the run simulates other ones."""
    instead_of: str | None = None
    """The kind of labels that come with the dataset, if the run uses the true ones instead."""
    sets: str | None = None
    """The origin of candidate sets: "given", or the name of a generator."""
    temperature: float | None = None
    """The temperature to which a generator of candidate sets was calibrated."""
    mean_size: float | None = None
    """The mean size of a candidate set."""
    min_size: int | None = None
    max_size: int | None = None
    singletons: float | None = None
    """The share of candidate sets with a single class."""
    noise: str | None = None
    """The origin of wrong labels: "given", or the name of a noise model."""
    noise_rates: tuple[float, ...] | None = None
    """The share of wrong labels by site."""
    annotates: str | None = None
    """The origin of the choice of annotated classes: "given", or a pattern."""
    annotated_rows: tuple[tuple[int, ...], ...] | None = None
    """[class][site]: rows annotated."""
    attribute: str | None = None
    """The name of the sensitive attribute."""
    groups: dict[str, int] | None = None
    """Rows that may belong to each group of the sensitive attribute."""
    mean_groups: float | None = None
    """The mean number of groups that a row may belong to."""
    adversaries: tuple[str, ...] | None = None
    """Sites that attack; None if unknown."""
    attack: tuple[str, ...] = ()
    """The effects of a simulated attack, in sentences."""
    further: dict[str, Any] = field(default_factory=dict)
    """Facts under other names, such as those of your own generator."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> DataFacts:
        """Read the facts that `FederatedData` carries."""
        names = {spec.name for spec in msgspec.structs.fields(cls)}
        known = {name: value for name, value in facts.items() if name in names}
        further = {name: value for name, value in facts.items() if name not in names}
        return msgspec.convert({**known, "further": further}, cls)


# -- auto --------------------------------------------------------------------------------------------------------------


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
        why = f": {self.words}" if self.words else ""
        share = f"{100 * self.corrected / self.labels:.0f} %"
        return f"Before the search {self.corrected} of {self.labels} labels ({share}) were corrected{why}."


class AutoSummary(Part, frozen=True):
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
    """The rounds after which a third of the trials went on."""
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
    """Whether trials were judged by what all of them agree on: candidate sets follow the inputs and tell too little."""
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


# -- the whole ---------------------------------------------------------------------------------------------------------


class Summary(WholeFile, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of a finished run."""

    title: str
    """The method together with its objective, repair, attack and defence."""
    method: str
    objective: str
    data: str
    seed: int
    data_seed: int
    seconds: float | None
    """None in a site's own summary: only the coordinator measures the time."""
    rounds: int
    metric: str
    """The name of the leading figure."""
    personal: OverSites
    """The leading figure of the sites' models."""
    common: dict[str, GlobalFigure] = field(name="global")
    """Figures of the global model by name; the names of those on validation rows say so."""
    sites: tuple[SiteSummary, ...]
    sent: dict[str, tuple[int, ...]]
    """Name and shape of everything that left a site."""
    account: dict[str, float]
    """Figures that the algorithm reports about itself, such as the epsilon it spent."""
    input: tuple[int, ...]
    """The shape of an input."""
    features: int
    """The number of features of sparse inputs; 0 for dense inputs."""
    standardised: bool
    """Whether inputs were standardised with `models/scale.safetensors`."""
    classes: tuple[str, ...]
    facts: DataFacts
    labels: LabelSummary | None = None
    by_class: tuple[ClassSummary, ...] = ()
    predictions: PredictionSummary | None = None
    """Class by class, where test rows have one class each."""
    calibration: CalibrationSummary | None = None
    target: TargetReached | None = None
    validation: ValidationSummary | None = None
    repair: RepairSummary | None = None
    suspicions: DefenceSummary | None = None
    privacy: PrivacySummary | None = None
    fairness: FairnessSummary | None = None
    auto: AutoSummary | None = None

    @property
    def temperature(self) -> float:
        """What the logits of the models are divided by before they are probabilities; 1 where it is not fitted."""
        return 1.0 if self.calibration is None else self.calibration.temperature or 1.0

    @property
    def early(self) -> bool:
        """Whether the run ended before its last round, by rows held out or by what privacy allows."""
        return any(part is not None and part.early for part in (self.validation, self.privacy))

    @property
    def headline(self) -> float | None:
        """The figure by which runs are compared: the mean over sites, or that of the global model if they have none."""
        common = self.common.get(self.metric)
        if self.personal.mean is None and common is not None:
            return common.value
        return self.personal.mean
