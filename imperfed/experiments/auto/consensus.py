"""What all trials agree on about labels that leave classes open, and when to judge the trials by it.

A row held out with a set of candidates does not show its class. If false candidates are drawn at random, the share of
predictions inside the sets, corrected for their sizes, gives the accuracy (`consistency`). If they resemble the true
class, very different models all stay inside the sets, and that score claims too much of each of them.

The claim can be checked: two models that are right on shares v and w of the rows agree on at least v + w - 1 of them.
Where trials agree on fewer, the mean over all pairs, their scores contradict one another. Then they are judged by the
mean of what all trials say given each row's set, which is right more often than most of them. A trial counts by the
log-odds of its score, as votes do that are right with different probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core.labels import Labels, Probabilities

LEAST_SURE, MOST_SURE = 0.55, 0.99
"""The bounds within which a trial's score is believed when its word is weighed."""


def leaves_open(kind: type[Labels]) -> bool:
    """Return whether rows have one class each, of which a label may leave several open."""
    return kind.inferable and not kind.several


def weight_of(score: float) -> float:
    """Return how much a trial's word counts: the log-odds of its score, at least a little."""
    sure = min(max(score, LEAST_SURE), MOST_SURE)
    return math.log(sure / (1 - sure))


def resolved(labels: Labels, trials: Mapping[int, Tensor], weights: Mapping[int, float]) -> Probabilities:
    """Return the probability of each row's classes given its label, the mean over the trials that have a weight."""
    given = torch.stack([labels.consistent(trials[number]) for number in sorted(weights)])
    share = torch.tensor([weights[number] for number in sorted(weights)])
    return Probabilities((given * (share / share.sum()).view(-1, 1, 1)).sum(0), labels.classes)


def agreement(
    labels: Labels, trials: Mapping[int, Tensor], weights: Mapping[int, float], numbers: Sequence[int]
) -> Tensor:
    """Return how many rows each of some trials has right, by what all agree on; and in how many pairs any two agree.

    float64 [numbers + 1]; `weights`: of the trials that have a vote. A pair is of two of these, on one row.
    """
    truth = resolved(labels, trials, weights).values.double()
    predicted = torch.stack([trials[number].argmax(1) for number in sorted(weights)], 1)
    votes = one_hot(predicted, labels.classes).sum(1)
    hits = [truth.gather(1, trials[number].argmax(1, keepdim=True)).sum() for number in numbers]
    return torch.stack([*hits, (votes * (votes - 1)).sum() / 2]).double()


def pairs(trials: int) -> int:
    """Return how many pairs so many trials make."""
    return trials * (trials - 1) // 2


def contradictory(scores: Sequence[float], agreeing: float, rows: int) -> bool:
    """Return whether trials agree on fewer rows than their scores claim; `agreeing`: over all pairs and rows."""
    if not pairs(len(scores)) or not rows:
        return False
    return 2 * sum(scores) / len(scores) - 1 > agreeing / (rows * pairs(len(scores)))
