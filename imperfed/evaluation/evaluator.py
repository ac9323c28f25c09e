"""Figures of models and of inferred labels, measured against the truth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.oracle import Oracle
from imperfed.engine.gathering import in_parts
from imperfed.engine.population import Scores
from imperfed.evaluation.fairness import Between, FairnessSummary, rate_names
from imperfed.evaluation.label_figures import FillingFigures, RepairFigures, SuspectFigures
from imperfed.evaluation.model_figures import (
    ONE_CLASS,
    RANKED,
    SEVERAL_CLASSES,
    Metric,
    accuracy_of,
    class_aurocs,
    figure,
)
from imperfed.evaluation.paired import Difference, Figure, over_rows, paired_difference
from imperfed.evaluation.prediction_counts import PredictionCounts, pooled

Predictor = Callable[[Tensor], Tensor]
"""A model, from inputs to logits."""
ANNOTATED, NEVER_ANNOTATED = "auroc annotated", "auroc never annotated"
"""The mean over the classes that a site annotates itself, and over those that only other sites annotate."""
VALIDATION = "validation "
"""The prefix of figures on validation rows."""


def _metrics(y: Tensor) -> dict[str, Metric]:
    return ONE_CLASS if y.ndim == 1 else SEVERAL_CLASSES


@dataclass(frozen=True)
class Evaluator:
    """Figures of models and labels, from an oracle that nothing else may read."""

    oracle: Oracle
    annotated: Tensor | None = None
    """bool [K, C]: which classes each site annotates; None if no site leaves out a class."""
    between: Between | None = None
    """The groups between which fairness is measured, if it is."""

    @classmethod
    def of(cls, oracle: Oracle, federation: Federation, between: Between | None = None) -> Evaluator:
        """Return an evaluator that knows from the federation's labels which site annotates what."""
        if between is not None and any(y.ndim > 1 for y in oracle.test_y):
            raise UsageError(f"fairness is measured for one class per row; rows of {federation.name} may have several")
        return cls(oracle, federation.annotated_by_site(), between)

    def to(self, device: torch.device) -> Evaluator:
        """Return a copy with the inputs on a device; the truth stays in host memory, where figures are computed."""
        moved: dict[int, Tensor] = {}

        def move(x: Tensor) -> Tensor:
            if id(x) not in moved:  # sites may share one test set
                moved[id(x)] = x.to(device)
            return moved[id(x)]

        oracle = replace(
            self.oracle,
            test_x=tuple(map(move, self.oracle.test_x)),
            common_x=None if self.oracle.common_x is None else move(self.oracle.common_x),
            validation_x=None if self.oracle.validation_x is None else move(self.oracle.validation_x),
        )
        return replace(self, oracle=oracle)

    def of_sites(self, sites: Collection[int], common: bool) -> Evaluator:
        """Return an evaluator with the test rows of these sites alone; `common`: and with those of no site."""
        oracle, held = self.oracle, frozenset(sites)

        def own(tests: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(t if k in held else t[:0] for k, t in enumerate(tests))

        parts = replace(
            oracle,
            truth=None,
            test_x=own(oracle.test_x),
            test_y=own(oracle.test_y),
            test_group=own(oracle.test_group),
        )
        if not common:
            parts = replace(parts, common_x=None, common_y=None, validation_x=None, validation_y=None)
        return replace(self, oracle=parts)

    @property
    def sites(self) -> int:
        """The number of sites with a test set of their own."""
        return len(self.oracle.test_x)

    @property
    def has_tests(self) -> bool:
        """Whether there are test rows at all, at sites or common ones."""
        return bool(self.sites) or self.oracle.common_x is not None

    @property
    def one_test(self) -> bool:
        """Whether all sites are evaluated on the same test rows."""
        return self.oracle.one_test

    @property
    def metric(self) -> str:
        """The name of the leading figure in tables."""
        tested = [y for y in (*self.oracle.test_y[:1], self.oracle.common_y, self.oracle.validation_y) if y is not None]
        return next(iter(self._metrics(tested[0]) if tested else ONE_CLASS))

    @property
    def figure_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the figures of one site, in order: of one whose rows have known groups, there may be more."""
        if not self.sites:
            return ()
        annotated = () if self.annotated is None else ("auroc", ANNOTATED, NEVER_ANNOTATED)
        names = tuple(dict.fromkeys((*self._metrics(self.oracle.test_y[0]), *annotated)))
        if self.between is None:
            return (names,)
        return tuple((*names, *fair) for fair in rate_names())

    def _metrics(self, y: Tensor) -> dict[str, Metric]:
        """Return the figures that suit the truth; without test sets at the sites, a short list of classes counts."""
        return RANKED if y.ndim > 1 and not self.sites else _metrics(y)

    def site(self, site: int, net: Predictor) -> Scores:
        """Return the figures of a network on the test set of one site."""
        x, y, groups = self.oracle.test_x[site], self.oracle.test_y[site], self.oracle.test_group
        logits = _logits(net, x)
        fair = {}
        if self.between is not None:
            fair = self.between.scores(x.cpu(), y, logits.argmax(1), groups[site] if groups else None)
        return self._scores(logits, y, None if self.annotated is None else self.annotated[site]) | fair

    def common(self, net: Predictor) -> Scores:
        """Return the figures of a network on the common test set; empty if there is none.

        Figures on validation rows, by which settings are chosen, have a prefix.
        """
        scores: Scores = {}
        for prefix, x, y in (
            ("", self.oracle.common_x, self.oracle.common_y),
            (VALIDATION, self.oracle.validation_x, self.oracle.validation_y),
        ):
            if x is not None and y is not None:
                scores |= {f"{prefix}{name}": score for name, score in self._scores(_logits(net, x), y).items()}
        return scores

    def _scores(self, logits: Tensor, y: Tensor, own: Tensor | None = None) -> Scores:
        """Return figures; means skip classes that no site annotates and separate those that only others annotate."""
        n = len(y)
        scores = {name: (metric(logits, y), n) for name, metric in self._metrics(y).items()}
        if self.annotated is None:
            return scores
        areas, anybody = class_aurocs(logits, y), self.annotated.any(0)
        scores["auroc"] = float(areas[anybody].nanmean()), n
        if own is not None:
            scores[ANNOTATED] = float(areas[own].nanmean()), n
            scores[NEVER_ANNOTATED] = float(areas[anybody & ~own].nanmean()), n
        return scores

    def compare(self, ours: Sequence[Predictor], theirs: Sequence[Predictor], seed: int) -> Difference | None:
        """Compare two models per site by the leading figure, on test rows of its own or common ones; None if none."""
        pairs = zip(self.row_figures(ours), self.row_figures(theirs), strict=True)
        sites = [(n, one, other) for (n, one), (_, other) in pairs]
        return paired_difference(sites, seed, self.one_test or not self.sites)

    def row_figures(self, nets: Sequence[Predictor]) -> list[tuple[int, Figure]]:
        """Return for the model of every site how many rows test it, and its leading figure over any of them."""
        tests = list(zip(self.oracle.test_x, self.oracle.test_y, strict=True))
        if not tests and self.oracle.common_x is not None and self.oracle.common_y is not None:
            tests = [(self.oracle.common_x, self.oracle.common_y)] * len(nets)
        return [(len(y), self._over_rows(_logits(net, x), y)) for (x, y), net in zip(tests, nets, strict=False)]

    def _over_rows(self, logits: Tensor, y: Tensor) -> Figure:
        if self._metrics(y) is not ONE_CLASS:
            return over_rows(self._leading, logits, y)
        right = (logits.argmax(1) == y).double()  # once, not for every sample of the rows
        return lambda rows: float(right[rows].mean())

    def _leading(self, logits: Tensor, y: Tensor) -> float:
        return self._scores(logits, y)[self.metric][0]

    def by_class(self, site: int, net: Predictor) -> Tensor:
        """Return the AUROC of every class on the test set of one site; NaN where undefined."""
        return class_aurocs(_logits(net, self.oracle.test_x[site]), self.oracle.test_y[site])

    @property
    def one_class(self) -> bool:
        """Whether every test row of the sites has exactly one class."""
        return self.annotated is None and all(
            y.ndim == 1 or bool((((y == 1).sum(1) == 1) & (y >= 0).all(1)).all()) for y in self.oracle.test_y
        )

    def predictions(
        self, nets: Callable[[int], Predictor], kind: type[Labels], temperature: float, alike: bool = False
    ) -> PredictionCounts | None:
        """Count what the sites' models (by the number of the site) predict for their test rows, each row once.

        `alike`: whether all sites have the same model, so that rows that they share are predicted once. None where
        there are no test rows, or where rows have several classes and none is known to be absent.
        """
        if not self.one_class and self.annotated is None:
            return None
        sites = range(self.sites)[: 1 if alike and self.one_test else None]
        return pooled([self.site_predictions(k, nets(k), kind, temperature) for k in sites], self.one_test)

    def site_predictions(self, site: int, net: Predictor, kind: type[Labels], temperature: float) -> PredictionCounts:
        """Count what a network predicts for the test rows of one site."""
        logits, y = _logits(net, self.oracle.test_x[site]), self.oracle.test_y[site]
        probability = kind.probabilities(logits / temperature)
        if self.annotated is not None:
            return PredictionCounts.of_cells(probability, y, self.annotated.any(0))
        return PredictionCounts.of_rows(probability, logits.argmax(1), y if y.ndim == 1 else y.argmax(1))

    def filled_in(self, start: int, stop: int, missing: Tensor, belief: Tensor) -> FillingFigures | None:
        """Judge how the missing labels (a mask) of these training rows were filled in; None if no truth is known."""
        if self.oracle.truth is None:
            return None
        truth = torch.where(missing, self.oracle.truth[start:stop], -1)
        known = truth >= 0
        if not known.any():
            return None
        right = (belief >= 0.5) == (truth == 1)
        return FillingFigures(
            accuracy=float(right[known].double().mean()),
            always_absent=float((truth == 0)[known].double().mean()),
            auroc=figure(float(class_aurocs(belief, truth).nanmean())),
            n=int(known.sum()),
        )

    def fairness(self, sites: Sequence[Scores], seed: int) -> FairnessSummary | None:
        """Measure fairness on the pooled test rows of all sites, from their figures; None if it is not requested."""
        return None if self.between is None else FairnessSummary.of(self.between, sites, seed, self.one_test)

    def labels(self, start: int, stop: int, suggested: Tensor) -> float | None:
        """Return the share of labels inferred for these training rows that are true; None if the truth is unknown."""
        truth = self.oracle.truth
        return None if truth is None else accuracy_of(suggested, truth[start:stop])

    def repaired(self, start: int, stop: int, given: Tensor, suggested: Tensor) -> RepairFigures | None:
        """Judge how a repair changed the labels of these training rows; None if the truth is unknown."""
        truth = self.oracle.truth
        return None if truth is None else RepairFigures.of(given, suggested, truth[start:stop])

    def suspected(
        self, start: int, stop: int, given: Labels, suspicion: Tensor, suspects: Tensor
    ) -> SuspectFigures | None:
        """Judge suspicions about the labels of these training rows; None if the truth is unknown."""
        if self.oracle.truth is None:
            return None
        truth, named = self.oracle.truth[start:stop], given.mentions()
        wrong = given.values != truth if named is None else ~named.gather(1, truth[:, None]).flatten()
        return SuspectFigures.of(suspicion, suspects, wrong)

    def rand_index(self, groups: tuple[int, ...]) -> float | None:
        """Return the adjusted Rand index of groups of sites against their tasks; None if sites have no tasks."""
        from sklearn.metrics import adjusted_rand_score

        return float(adjusted_rand_score(self.oracle.tasks, groups)) if groups and self.oracle.tasks else None

    def mistaken(self, suggested: Tensor, classes: int) -> list[list[int]] | None:
        """Count how often each true class (row) was mistaken for another (column); None if the truth is unknown."""
        if self.oracle.truth is None:
            return None
        wrong = self.oracle.truth != suggested
        pairs = self.oracle.truth[wrong] * classes + suggested[wrong]
        counts: list[list[int]] = torch.bincount(pairs, minlength=classes * classes).view(classes, classes).tolist()
        return counts


@torch.no_grad()
def _logits(net: Predictor, x: Tensor) -> Tensor:
    """Return the logits of all rows, in host memory."""
    return torch.cat([net(part) for part in in_parts(x)]).cpu()
