"""A dataset in memory: what the readers produce and the partitions divide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute
from imperfed.core.labels import Annotated, Candidates, Exact, Labels


@dataclass(frozen=True)
class Dataset:
    """Examples as they were read, before they are split across sites."""

    name: str
    x: Tensor
    """float32 [n, ...]; images as [n, channels, height, width] scaled to 0 .. 1."""
    y: Tensor | None
    """True classes, if known: int64 [n], or int8 [n, C] if a row may have several (1 present, 0 absent, -1 unknown)."""
    candidates: Tensor | None
    """bool [n, C]; real candidate sets, if the data have them."""
    classes: tuple[str, ...]
    test_x: Tensor | None = None
    """The official test set, if there is one."""
    test_y: Tensor | None = None
    column: Tensor | None = None
    """int64 [n]; the natural site of every example, such as the person it was recorded from."""
    group: Tensor | None = None
    """int64 [n]; which rows belong together, such as the images of one patient: never both trained and tested on."""
    given: Tensor | None = None
    """int64 [n]; one class per example as annotators gave it, right or wrong, if the data have such labels."""
    trusted: Tensor | None = None
    """bool [n]; rows with a label known to be right, which only the server holds, if the data mark any."""
    ids: tuple[str, ...] = ()
    """A stable name for every row; by default its position."""
    attribute: Attribute | None = None
    """A sensitive attribute; its columns are 1 for the group, or all possible groups, of a row and 0 elsewhere."""

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", tuple(map(str, range(len(self.x)))))

    def __len__(self) -> int:
        return len(self.x)

    def check(self, where: str = "") -> Dataset:
        """Return the dataset; a `DataError` names `where` (a file, or else the dataset) and the first bad row."""
        where = where or self.name
        self._check_shapes(where)
        check_finite(self.x, where)
        if self.y is not None:
            self._truth(self.y).check(where)
        if self.candidates is not None:
            Candidates(self.candidates, len(self.classes)).check(where)
        if self.given is not None:
            Exact(self.given, len(self.classes)).check(f"{where}, labels as given")
        if self.y is not None and self.candidates is not None:
            _check_covered(self.y, self.candidates, where)
        if self.test_x is not None and self.test_y is not None:
            check_finite(self.test_x, f"{where}, test set")
            self._truth(self.test_y).check(f"{where}, test set")
        for x, part in ((self.x, where), (self.test_x, f"{where}, test set")):
            if self.attribute is not None and x is not None:
                _check_groups(x, self.attribute, part)
        return self

    def _truth(self, y: Tensor) -> Labels:
        return (Exact if y.ndim == 1 else Annotated)(y, len(self.classes))

    def _check_shapes(self, where: str) -> None:
        if self.x.ndim < 2 or self.x.numel() == 0:
            raise DataError(f"{where}: no examples; the features have shape {tuple(self.x.shape)}, expected [n, ...]")
        if self.y is None and self.candidates is None and self.given is None:
            raise DataError(f"{where}: no true classes, candidate sets or labels; provide at least one of them")
        parts = {
            "true classes": self.y,
            "labels as given": self.given,
            "candidate sets": self.candidates,
            "sites": self.column,
            "marks of trusted rows": self.trusted,
            "groups": self.group,
            "ids": self.ids,
        }
        for what, values in parts.items():
            if values is not None and len(values) != len(self.x):
                raise DataError(f"{where}: {len(self.x)} examples but {len(values)} {what}")
        if (self.test_x is None) != (self.test_y is None):
            raise DataError(f"{where}: a test set needs both its features and its classes")
        if self.test_x is not None and self.test_y is not None:
            if len(self.test_x) != len(self.test_y):
                raise DataError(f"{where}, test set: {len(self.test_x)} examples but {len(self.test_y)} true classes")
            if self.y is not None and self.test_y.ndim != self.y.ndim:
                raise DataError(f"{where}, test set: true classes must be as in the training set, one or several")
            if self.test_x.shape[1:] != self.x.shape[1:]:
                raise DataError(
                    f"{where}, test set: an example has shape {tuple(self.test_x.shape[1:])}, "
                    f"in the training set {tuple(self.x.shape[1:])}"
                )


def label_matrix(array: np.ndarray[Any, np.dtype[Any]], where: str) -> Tensor:
    """Return a matrix of 1 (present), 0 (absent) and -1 (not annotated), one column per class, as int8."""
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(f"{where}: expected a matrix of 1, 0 and -1; found {array.dtype} of shape {array.shape}")
    odd = np.argwhere(~np.isin(array, (-1, 0, 1)))
    if len(odd):
        row, column = (int(i) for i in odd[0])
        raise DataError(
            f"{where}, row {row}, column {column}: {array[row, column]} is none of 1 (present), 0 (absent), "
            "-1 (not annotated)"
        )
    return torch.from_numpy(array.astype(np.int8))


def check_finite(x: Tensor, where: str) -> None:
    """Refuse inputs that are not finite numbers, naming the first such row."""
    if x.sum().isfinite():  # one cheap pass; finite numbers whose sum overflows are checked again below
        return
    finite = torch.isfinite(x).flatten(1)
    if finite.all():
        return
    rows = (~finite.all(1)).nonzero().flatten()
    row = int(rows[0])
    feature = int((~finite[row]).nonzero()[0])
    raise DataError(
        f"{where}, row {row}, feature {feature}: {float(x[row].flatten()[feature])} is not a finite float32 number "
        f"({len(rows)} such rows in all); fill or drop them first"
    )


def _check_groups(x: Tensor, attribute: Attribute, where: str) -> None:
    groups = attribute.of(x)
    wrong = (((groups != 0) & (groups != 1)).any(1) | (groups.sum(1) == 0)).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where}, row {row}: the columns of {attribute.name} hold {groups[row].tolist()} ({len(wrong)} such rows "
            "in all); they must be 1 for at least one group and 0 for all others"
        )


def _check_covered(y: Tensor, candidates: Tensor, where: str) -> None:
    if y.ndim > 1:
        raise DataError(f"{where}: candidate sets need rows with one class each, but y is a matrix; keep one of them")
    rows = (~candidates.gather(1, y[:, None]).flatten()).nonzero().flatten()
    if len(rows):
        row = int(rows[0])
        raise DataError(
            f"{where}, row {row}: the true class {int(y[row])} is not among the candidates ({len(rows)} such rows in "
            "all); a candidate set must contain the true class"
        )
