"""What all kinds of labels have in common, and what each kind defines about itself.

How a kind is read from files is in `read_labels.py`, how it is described and written in `described_labels.py`.

The constructors are cheap and check nothing, since a batch is built at every local step; `check` is called once, where
data enters a federation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.described_labels import DescribedLabels
from imperfed.core.labels.read_labels import ReadLabels
from imperfed.core.labels.validity import UNKNOWN, Validity, consistency, ranking

RAREST = 1e-6
"""The least probability that counts, so that no single row decides a comparison of models."""


@dataclass(frozen=True)
class Labels(ReadLabels, DescribedLabels, ABC):
    """Labels of n examples over a declared space of classes, stored as one tensor whose first dimension is n.

    The tensor is a matrix with one column per class, unless the kind says otherwise (`OneClass`).
    """

    kind: ClassVar[str]
    """The name of the kind, in declarations and in results."""
    title: ClassVar[str]
    """What the labels are called in a sentence."""
    dtype: ClassVar[torch.dtype]

    several: ClassVar[bool] = False
    """Whether a row may have several classes; its truth is then one mark per class."""
    settles: ClassVar[bool] = False
    """Whether a label claims to be the class of its row, so that two different labels of one input conflict."""
    measurable: ClassVar[bool] = False
    """Whether models can be tested on held-out rows by the labels of these rows."""
    ranked: ClassVar[bool] = False
    """Whether a common test asks for a short list of classes per row; a site has no means to test its own model."""
    partial: ClassVar[bool] = False
    """Whether a site may leave out classes altogether, so that blank cells and missing columns have a meaning."""
    inferable: ClassVar[bool] = False
    """Whether a run infers what these labels leave open and writes it to a label file."""
    uncalibrated: ClassVar[str] = ""
    """Why rows held out cannot show how sure a model may be, after "since"; empty where they can."""

    values: Tensor
    classes: int

    def __len__(self) -> int:
        return self.values.shape[0]

    def take(self, rows: Tensor) -> Self:
        """Return the labels of these rows (fixed shape: one output row for every index)."""
        return type(self)(self.values.index_select(0, rows), self.classes)

    def between(self, start: int, stop: int) -> Self:
        """Return the labels of the rows start .. stop - 1, as a view."""
        return type(self)(self.values[start:stop], self.classes)

    def to(self, device: torch.device) -> Self:
        """Return the same labels on a device."""
        return type(self)(self.values.to(device), self.classes)

    # -- how they are stored -------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, classes: int) -> Self:
        """Return the labels of no rows."""
        return cls(torch.empty(0, classes, dtype=cls.dtype), classes)

    @classmethod
    def from_classes(cls, y: Tensor, classes: int) -> Self:
        """Return labels that give every row its class; `y`: int64 [n]."""
        return cls(torch.eye(classes, dtype=cls.dtype, device=y.device)[y], classes)

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise `DataError` naming the first row that breaks this kind's invariants."""

    def _check_matrix(self, where: str) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != self.classes or self.values.dtype != self.dtype:
            raise DataError(
                f"{where}: {self.kind} labels must be a {self.dtype} matrix with one column per class "
                f"({self.classes}); found {self.values.dtype} of shape {tuple(self.values.shape)}"
            )

    @classmethod
    def clean_kind(cls) -> type[Labels]:
        """Return the kind in which the labels of clean rows, such as those of a test file, are read."""
        return cls

    # -- what a model learns from them ---------------------------------------------------------------------------------

    @staticmethod
    def probabilities(logits: Tensor) -> Tensor:
        """Return the probability of each class: classes exclude each other, unless the kind says otherwise."""
        return torch.softmax(logits, -1)

    @staticmethod
    def logits(probability: Tensor) -> Tensor:
        """Return logits with these probabilities, which need not sum to 1 over the classes."""
        return probability.clamp(min=RAREST).log()

    @staticmethod
    def normalised(probability: Tensor) -> Tensor:
        """Return probabilities as this kind has them, from one probability per class that may not sum to 1."""
        return probability / probability.sum(-1, keepdim=True).clamp(min=RAREST)

    def consistent(self, probability: Tensor) -> Tensor:
        """Return the probabilities given each row's label: 0 for classes that it rules out."""
        mentions = self.mentions()
        return probability if mentions is None else self.normalised(probability.clamp(min=RAREST) * mentions)

    def tempered(self, belief: Tensor, temperature: float) -> Tensor:
        """Return the probabilities that were inferred given each row's label, at a temperature; their order stays."""
        if temperature == 1:
            return belief
        logits = belief.double().clamp(min=torch.finfo(torch.float32).tiny).log()
        return self.consistent(self.probabilities(logits / temperature).to(belief.dtype))

    def log_likelihood(self, probability: Tensor) -> Tensor:
        """Return the log-likelihood of each row's label under these probabilities, [n]: that one of its classes holds.

        It says more than a count of hits where rows are few. A row that says nothing has 0.
        """
        mentions = self.mentions()
        assert mentions is not None
        inside = (self.normalised(probability) * mentions).sum(-1)
        return torch.where(mentions.any(-1), inside.clamp(min=RAREST).log(), 0.0)

    # -- how well a model agrees with them on rows that it was not trained on ------------------------------------------

    @classmethod
    def validity_name(cls) -> str:
        """Return the name of the figure that `validity` computes."""
        return "ranking" if cls.several else "consistency"

    def validity(self, logits: Tensor) -> Validity:
        """Score the logits of these rows, [n, C], against their labels as given: here, the classes they name."""
        mentions = self.mentions()
        if mentions is None:
            return UNKNOWN
        return ranking(logits, mentions) if self.several else consistency(logits, mentions)

    # -- what a learner that knows nothing of this kind makes of them --------------------------------------------------

    def weighted_examples(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return row, class and weight of every class that a row names; the weights of a row sum to 1.

        For kinds whose rows have one class.
        """
        mentions = self.mentions()
        assert mentions is not None
        row, named = mentions.nonzero(as_tuple=True)
        return row, named, 1.0 / mentions.sum(1).float()[row]

    def marks(self) -> Tensor:
        """Return 1, 0 or -1 (not known) for every class, int8 [n, C]: a class that is not named counts as absent.

        For kinds whose rows may have `several` classes.
        """
        mentions = self.mentions()
        assert mentions is not None
        return mentions.to(torch.int8)

    # -- how much they say ---------------------------------------------------------------------------------------------

    @abstractmethod
    def counts(self) -> ClassCounts:
        """Return what these labels say about each class."""

    def set_sizes(self) -> dict[int, int]:
        """Return the number of rows by the size of their candidate set; empty for labels that are not sets."""
        return {}

    def mentions(self) -> Tensor | None:
        """Return which classes each row names, bool [n, C]; None where each row names exactly one."""
        return self.values > 0

    def co_occurrence(self) -> Tensor | None:
        """Return how many rows name both of two classes, int64 [C, C]; None where each row names exactly one."""
        mentions = self.mentions()
        if mentions is None:
            return None
        named = mentions.double()
        return (named.T @ named).long()

    def unknown(self) -> Tensor:
        """Return which classes each row leaves open, bool [n, C]; for kinds that are both `several` and `inferable`."""
        raise NotImplementedError

    def annotated_classes(self) -> Tensor:
        """Return the classes about which any row says anything, bool [C]: all of them, unless the kind is `partial`."""
        return torch.ones(self.classes, dtype=torch.bool)

    def facts(self, sizes: Sequence[int]) -> dict[str, Any]:
        """Return figures about the labels, for a summary; `sizes`: the number of rows at each site."""
        return {}

    def given_facts(self, sizes: Sequence[int], truth: Tensor | None) -> dict[str, Any]:
        """Return what a summary says about labels that came with the data, using the truth where it is known."""
        return {}

    def chance(self) -> float:
        """Return the expected share of rows that a random guess among the classes they name gets right."""
        mentions = self.mentions()
        return 1.0 if mentions is None else float((1.0 / mentions.sum(1).clamp(min=1)).mean())
