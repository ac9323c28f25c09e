"""What all kinds of labels have in common, and what each kind defines about itself.

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
from imperfed.core.labels.label_cells import Cells, NoteRow
from imperfed.core.labels.validity import UNKNOWN, Validity, consistency, ranking

RAREST = 1e-6
"""The least probability that counts, so that no single row decides a comparison of models."""
SEPARATOR = "|"
"""Separates the names of several classes in the tables that are written."""


@dataclass(frozen=True)
class Labels(ABC):
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
    from_cells: ClassVar[bool] = False
    """Whether one column of a user's file can hold the labels: `read_cell`."""
    from_columns: ClassVar[bool] = False
    """Whether one column per class, or a matrix, can hold the labels: `read_mark` and `from_marks`."""

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

    @classmethod
    def predicted(cls, probability: Tensor, classes: Sequence[str]) -> list[str]:
        """Return the prediction for every row, in words."""
        return [classes[c] for c in probability.argmax(1).tolist()]

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

    # -- how they are read from a user's file --------------------------------------------------------------------------

    @classmethod
    def unreadable(cls, classes: int) -> Any:
        """Return a placeholder for a row that cannot be read, which is noted as a problem."""
        return torch.zeros(classes, dtype=cls.dtype).numpy()

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> Any:
        """Return the row of `values` that one cell holds; see `from_cells`."""
        raise NotImplementedError

    @classmethod
    def read_mark(cls, cell: Any, cells: Cells) -> float:
        """Return what a cell says about the class of its column; see `from_columns`."""
        return cells.mark_in(cell)

    @classmethod
    def from_marks(cls, marks: Tensor, note: NoteRow) -> Tensor:
        """Return `values` from the marks of every row and class; note rows that cannot be of this kind."""
        return marks

    @classmethod
    def clean_kind(cls) -> type[Labels]:
        """Return the kind in which the labels of clean rows, such as those of a test file, are read."""
        return cls

    def as_truth(self, note: NoteRow) -> Tensor:
        """Return the truth that the labels of clean rows hold: int64 [n], or int8 [n, C] where `several`."""
        return self.values

    def contradicted_by(self, truth: Tensor) -> Tensor:
        """Return the rows whose truth the labels rule out: bool [n]. An unreadable row contradicts nothing."""
        return torch.zeros(len(self), dtype=torch.bool)

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

    # -- how they are described ----------------------------------------------------------------------------------------

    caption: ClassVar[str] = "rows of the class"
    """What `tally` counts."""
    legend: ClassVar[tuple[str, str, str]] = ("known to be present", "known to be absent", "not known")
    """What it means for this kind that a class counts as positive, negative or unknown."""

    @classmethod
    def tally(cls, positive: int, negative: int, unknown: int) -> str:
        """Return what the census shows for one class at one site."""
        return str(positive or "")

    @classmethod
    def naming(cls, counts: ClassCounts) -> Tensor:
        """Return the number of rows that name each class."""
        return counts.positive

    @classmethod
    def held(cls, counts: ClassCounts) -> Tensor:
        """Return the classes about which a site with these counts has information: bool [C]."""
        return counts.weight > 0

    @classmethod
    def caution(cls, counts: ClassCounts) -> str:
        """Return a warning about how such labels may be misread; empty where there is none."""
        return ""

    # -- how they are written to a label file --------------------------------------------------------------------------

    def written(self, classes: Sequence[str]) -> list[str]:
        """Return the label of every row in words."""
        mentions = self.mentions()
        assert mentions is not None
        return [SEPARATOR.join(classes[c] for c, named in enumerate(row) if named) for row in mentions.tolist()]

    def reasons(self) -> list[str]:
        """Return why a class was suggested for every row, in words."""
        return ["the most probable class"] * len(self)

    def label_table(
        self, ids: Sequence[str], classes: Sequence[str], belief: Tensor, learned: Tensor | None
    ) -> dict[str, list[Any]]:
        """Return the columns of a site's label file: one line per row, with one suggested class.

        `belief`: the probability of each class for each row. `learned`: the classes that any site annotates, bool [C];
        None: all of them.
        """
        confidence, suggested = belief.max(1)
        return {
            "id": list(ids),
            "given": self.written(classes),
            "suggested": [classes[c] for c in suggested.tolist()],
            "confidence": confidence.tolist(),
            "reason": self.reasons(),
        }

    def chance(self) -> float:
        """Return the expected share of rows that a random guess among the classes they name gets right."""
        mentions = self.mentions()
        return 1.0 if mentions is None else float((1.0 / mentions.sum(1).clamp(min=1)).mean())
