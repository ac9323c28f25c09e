"""The figures of a search that travel, as words of a message; from a site they are claims, and checked as such."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor

from imperfed.alone import AloneModel
from imperfed.core.labels.base import RAREST
from imperfed.engine.population import Scores
from imperfed.evaluation.paired import Difference
from imperfed.experiments.auto.alone_search import own_model
from imperfed.flower.messages.payload import Payload, RefusedError, Word, scores_of, scores_words

SLACK = 1e-3
"""By how much the mean log-likelihood of a row may lie outside its bounds for want of precision."""


def likelihood_words(sums: Tensor) -> dict[str, Word]:
    """Return the sums of log-likelihoods of the labels that a site holds out, one per option."""
    return {"likelihood": [float(value) for value in sums]}


def likelihoods_of(payload: Payload, options: int, rows: int) -> Tensor:
    """Return such sums from a message. No label's log-likelihood is above 0 or below that of the rarest event."""
    sums = _reals(payload, "likelihood", options)
    low, high = rows * (math.log(RAREST) - SLACK), rows * SLACK
    if any(not low <= value <= high for value in sums):
        raise RefusedError(f"log-likelihoods of {rows} labels cannot add up to {_listed(sums)}")
    return torch.tensor(sums, dtype=torch.float64)


def consensus_words(weights: Mapping[int, float]) -> dict[str, Word]:
    """Return the trials that speak about rows held out, and how much the word of each counts."""
    return {"trials": sorted(weights), "weights": [float(weights[number]) for number in sorted(weights)]}


def weights_of(payload: Payload) -> dict[int, float]:
    """Return the same from a message."""
    numbers, weights = cast(list[int], payload.several("trials")), cast(list[float], payload.several("weights"))
    return dict(zip(numbers, weights, strict=True))


def agreement_words(sums: Tensor) -> dict[str, Word]:
    """Return how many rows trials have right by what all agree on, and in how many pairs two of them agree."""
    return {"agreement": [float(value) for value in sums]}


def agreement_of(payload: Payload, trials: int, rows: int, pairs: int) -> Tensor:
    """Return such counts from a message; `pairs`: of all trials."""
    *hits, agreeing = counts = _reals(payload, "agreement", trials + 1)
    most = rows * (1 + SLACK)
    if any(not 0 <= hit <= most for hit in hits) or not 0 <= agreeing <= rows * pairs:
        raise RefusedError(f"{rows} rows cannot agree with trials as often as {_listed(counts)}")
    return torch.tensor(counts, dtype=torch.float64)


def difference_words(difference: Difference | None) -> dict[str, Word]:
    """Return how a site's mixture and its own model differ: two figures, the interval and the number of rows."""
    if difference is None:
        return {}
    numbers = (difference.first, difference.second, difference.low, difference.high)
    return {"difference": [float(number) for number in numbers], "rows": difference.n}


def difference_of(payload: Payload, rows: int, classes: int) -> Difference | None:
    """Return the difference in a message; `rows`: the most that it can rest on. No score is below minus `classes`."""
    if "difference" not in payload.words:
        return None
    first, second, low, high = numbers = _reals(payload, "difference", 4)
    n = payload.number("rows")
    possible = all(-classes <= score <= 1 for score in (first, second)) and 0 < n <= rows
    if not possible or not -classes - 1 <= low <= high <= classes + 1:
        raise RefusedError(f"a difference of {_listed(numbers)} on {n} rows cannot be")
    return Difference(first, second, low, high, n)


def score_words(name: str, score: float | None) -> dict[str, Word]:
    """Return a figure that may be undefined."""
    return {} if score is None else {name: float(score)}


def score_of(payload: Payload, name: str, classes: int) -> float | None:
    """Return a figure from a message; None if it is undefined."""
    if name not in payload.words:
        return None
    score = payload.real(name)
    if not -classes <= score <= 1:
        raise RefusedError(f"{name} = {score:g} cannot be")
    return score


def option_of(payload: Payload, name: str, options: int) -> int:
    """Return which of several options a site has chosen."""
    option = payload.number(name)
    if not 0 <= option < options:
        raise RefusedError(f"{name} = {option} is none of the {options} options")
    return option


@dataclass(frozen=True)
class MixtureFigures:
    """What a site tells at the end about what it predicts with."""

    scores: Scores
    """Of its mixture, on its test rows."""
    alone: float | None
    """The leading figure of its own model there."""
    difference: Difference | None

    def words(self) -> dict[str, Word]:
        """Return them as words."""
        return scores_words(self.scores) | score_words("alone", self.alone) | difference_words(self.difference)

    @classmethod
    def of(cls, payload: Payload, rows: int, classes: int, known: Collection[tuple[str, ...]]) -> MixtureFigures:
        """Return them from a message; `rows`: the site's test rows, `known`: the names that its figures can have."""
        alone = score_of(payload, "alone", classes)
        return cls(scores_of(payload, rows, known), alone, difference_of(payload, rows, classes))


def family_words(kinds: Sequence[AloneModel]) -> dict[str, Word]:
    """Return families of models with their settings."""
    return {"families": [json.dumps({"family": kind.name, "settings": asdict(kind)}) for kind in kinds]}


def families_of(payload: Payload) -> list[AloneModel]:
    """Return the families in a message."""
    plain: list[dict[str, Any]] = [json.loads(text) for text in cast(list[str], payload.several("families"))]
    return [own_model(one["family"], one["settings"]) for one in plain]


def _reals(payload: Payload, name: str, count: int) -> list[float]:
    words = payload.several(name)
    if len(words) != count or any(type(word) is not float or not math.isfinite(word) for word in words):
        raise RefusedError(f"its {name} is not {count} finite numbers")
    return cast(list[float], words)


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
