"""A judgement of every label: the posteriors of a repair, without any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.components import LabelDecision, RepairResult, RepairVerdict
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Candidates, Labels
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.conversation import repair_labels
from imperfed.evaluation.evaluator import Evaluator
from imperfed.repairs.posterior import PosteriorRepair, SetPosterior, suited


@dataclass(frozen=True)
class Judgement:
    """What a repair thinks of every label of a federation."""

    federation: Federation
    """With the labels as given."""
    result: RepairResult
    evaluator: Evaluator
    clean_rows: int
    """The number of rows with true labels that were used."""
    others: int = 0
    """How many other sites, whose labels are not here, were judged together with these."""

    @property
    def verdict(self) -> RepairVerdict:
        """Whether the features support a repair."""
        assert self.result.verdict is not None
        return self.result.verdict

    @property
    def posterior(self) -> Tensor:
        """The probability of every class for every row, [n, C]."""
        return torch.cat([decision.posterior for decision in self.result.decisions if decision.posterior is not None])

    @property
    def joint(self) -> Tensor:
        """The estimated shares of all sites' rows by true and given class, [C, C]."""
        assert self.verdict.joint is not None
        return self.verdict.joint

    @property
    def sets(self) -> bool:
        """Whether the labels are candidate sets, which are ranked and stay as they are."""
        return isinstance(self.federation.labels, Candidates)

    def ranges(self) -> Sequence[tuple[int, int]]:
        """Return the first row of every site, and the first after its last."""
        return list(pairwise(self.federation.starts))


def judge(repair: PosteriorRepair, data: FederatedData) -> Judgement:
    """Let all sites judge their labels; nothing is trained but the repair's own probe."""
    federation = data.federation
    refuse_unjudgeable(repair, federation.name, type(federation.labels), width(federation.x))
    method = judge_of(repair, type(federation.labels))
    _, result = repair_labels(method, federation)
    return Judgement(federation, result, Evaluator.of(data.oracle, federation), clean_rows(method, federation))


def judge_of(repair: PosteriorRepair, kind: type[Labels]) -> PosteriorRepair:
    """Return what judges labels of this kind, with the settings of a repair."""
    found = suited(repair, kind)
    assert isinstance(found, PosteriorRepair)
    return found


def judge_own(
    repair: PosteriorRepair,
    data: FederatedData,
    decision: LabelDecision,
    verdict: RepairVerdict,
    clean_rows: int,
    others: int,
) -> Judgement:
    """Return what a real site thinks of its own labels, after it has decided about them together with others."""
    federation = data.federation
    reasons = repair.reasons(federation.classes, decision)
    result = RepairResult(federation.labels.values, (decision,), reasons, {}, 0, 0, verdict=verdict)
    return Judgement(federation, result, Evaluator.of(data.oracle, federation), clean_rows, others)


def clean_rows(repair: PosteriorRepair, federation: Federation) -> int:
    """Return how many rows with true labels are used."""
    trusted = federation.trusted
    return len(trusted.x) if trusted is not None and repair.uses(True) else 0


def refuse_unjudgeable(repair: PosteriorRepair, name: str, kind: type[Labels], sparse: int) -> None:
    """Refuse labels and inputs that cannot be judged; `sparse`: the number of features of sparse inputs, else 0."""
    if kind not in (repair.labels, SetPosterior.labels):
        judged = f"{repair.labels.title} and {SetPosterior.labels.title}"
        raise UsageError(f"{name}: an audit judges {judged}, and these are {kind.title}. {why(kind)}")
    if sparse and ":" not in repair.features:
        raise UsageError(
            f"{name}: sparse inputs are no features by which rows can be compared; hand over a function "
            "of your own that makes some: --features module:function"
        )


def why(kind: type[Labels]) -> str:
    """Return why labels of a kind cannot be judged."""
    if kind.several:
        return (
            "Judged class by class in our tests, wrong marks of 'absent' were hardly found, and repairs did harm "
            "(docs/audit.md has the figures). A single label of yes and no can be audited as exact labels, without its "
            "blank rows"
        )
    return "The method weighs how often each class is taken for each other one, which needs one class per row"
