"""A judgement of every label: the posteriors of a repair, without any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.components import RepairResult, RepairVerdict
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.conversation import repair_labels
from imperfed.evaluation.evaluator import Evaluator
from imperfed.repairs.posterior import PosteriorRepair


@dataclass(frozen=True)
class Judgement:
    """What a repair thinks of every label of a federation."""

    federation: Federation
    """With the labels as given."""
    result: RepairResult
    evaluator: Evaluator
    clean_rows: int
    """The number of rows with true labels that were used."""

    @property
    def verdict(self) -> RepairVerdict:
        """Whether the features support a repair."""
        assert self.result.verdict is not None
        return self.result.verdict

    @property
    def posterior(self) -> Tensor:
        """The probability of every class for every row, [n, C]."""
        return torch.cat([decision.posterior for decision in self.result.decisions if decision.posterior is not None])

    def ranges(self) -> Sequence[tuple[int, int]]:
        """Return the first row of every site, and the first after its last."""
        return list(pairwise(self.federation.starts))


def judge(repair: PosteriorRepair, data: FederatedData) -> Judgement:
    """Let all sites judge their labels; nothing is trained but the repair's own probe."""
    federation, features = data.federation, repair.features
    if type(federation.labels) is not repair.labels:
        raise UsageError(
            f"{federation.name}: an audit judges {repair.labels.title}, and these are {federation.labels.title}. "
            f"{why(federation.labels)}"
        )
    if width(federation.x) and ":" not in features:
        raise UsageError(
            f"{federation.name}: sparse inputs are no features by which rows can be compared; hand over a function "
            "of your own that makes some: --features module:function"
        )
    _, result = repair_labels(repair, federation)
    trusted = federation.trusted if repair.uses(federation.trusted is not None) else None
    return Judgement(
        federation,
        result,
        Evaluator.of(data.oracle, federation),
        0 if trusted is None else len(trusted.x),
    )


def why(labels: Labels) -> str:
    """Return why labels of a kind cannot be judged."""
    if labels.several:
        return (
            "Class by class it could be tried, but the rows of which features are surest are then nearly all without "
            "the class, and tell nothing about wrong marks where it is present"
        )
    return "The method weighs how often each class is taken for each other one, which needs one class per row"
