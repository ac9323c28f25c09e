"""One site per label, holding every example with that label: all that a site knows about an example is that one label.

The setting of FedAwS and FedALC. An example with several labels is held by several sites, but stored once. Test and
validation examples are drawn first, from all examples; they belong to no site.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Positive
from imperfed.data.dataset import Dataset
from imperfed.data.files.site_names import name_trouble
from imperfed.data.oracle import Oracle
from imperfed.data.partitions.base import Partition

if TYPE_CHECKING:
    from imperfed.data.split import SplitConfig


@dataclass(frozen=True)
class ExampleSplit:
    """Row numbers of the three parts, each in order."""

    train: Tensor
    validation: Tensor
    test: Tensor


@dataclass(frozen=True)
class LabelPartition(Partition):
    """One site per label, holding every example with that label; for data with several labels per example."""

    name: ClassVar[str] = "label"

    def set_apart(self, dataset: Dataset, split: SplitConfig, generator: np.random.Generator) -> ExampleSplit:
        """Draw the test and validation examples; an official test set replaces the drawn one.

        Examples without any label are left out.
        """
        if dataset.y is None or dataset.y.ndim != 2:
            raise DataError(f"{dataset.name}: partition = label is for data with several classes per example")
        if split.trusted:
            raise UsageError("partition = label leaves no rows for the server; set split.trusted = 0")
        if not 0 <= split.validation < 1 or split.test + split.validation >= 1:
            raise UsageError("split.test and split.validation are shares that must leave something to train on")
        rows = torch.from_numpy(generator.permutation(len(dataset)))
        rows = rows[(dataset.y[rows] == 1).any(1)]
        test = 0 if dataset.test_x is not None else round(split.test * len(rows))
        validation = round(split.validation * len(rows))
        parts = rows.tensor_split([test, test + validation])
        tested, validated, train = (part.sort().values for part in parts)
        if not len(train):
            raise DataError(f"{dataset.name}: no example with a label is left to train on")
        return ExampleSplit(train, validated, tested)

    def federate(self, dataset: Dataset, examples: ExampleSplit) -> tuple[Federation, Oracle, dict[str, Any]]:
        """Return the sites, the common test and validation examples, and the facts of the split."""
        assert dataset.y is not None
        example, label = (dataset.y[examples.train] == 1).nonzero().unbind(1)
        order = label.argsort(stable=True)
        at, label = example[order], label[order]
        held, sizes = label.unique_consecutive(return_counts=True)
        for name in (dataset.classes[c] for c in held.tolist()):
            if trouble := name_trouble(name):
                raise DataError(
                    f"{dataset.name}: with partition = label sites are called like classes, and there is {trouble}; "
                    "rename the class"
                )
        federation = Federation(
            name=dataset.name,
            x=dataset.x[examples.train],
            labels=Positive(label, len(dataset.classes)),
            starts=tuple(accumulate(sizes.tolist(), initial=0)),
            sites=tuple(dataset.classes[c] for c in held.tolist()),
            classes=dataset.classes,
            ids=tuple(dataset.ids[row] for row in examples.train[at].tolist()),
            public=dataset.x[:0],
            at=at,
        ).check()
        oracle = seal(dataset, examples)
        by_frequency = sizes.argsort(descending=True, stable=True)
        guesses = {"most_frequent": guessing(oracle.common_y, held[by_frequency])}
        return federation, oracle, facts_of(dataset, federation, examples, held) | guesses


def seal(dataset: Dataset, examples: ExampleSplit) -> Oracle:
    """Return the common test set, and the examples for choosing settings."""
    assert dataset.y is not None
    test_x, test_y = dataset.test_x, dataset.test_y
    if test_x is None and len(examples.test):
        test_x, test_y = dataset.x[examples.test], dataset.y[examples.test]
    validates = len(examples.validation) > 0
    return Oracle(
        truth=None,
        test_x=(),
        test_y=(),
        common_x=test_x,
        common_y=test_y,
        validation_x=dataset.x[examples.validation] if validates else None,
        validation_y=dataset.y[examples.validation] if validates else None,
    )


def guessing(y: Tensor | None, often: Tensor) -> dict[str, float]:
    """Return P@k of always predicting the k most frequent training labels."""
    return {} if y is None else {f"p@{k}": float((y[:, often[:k]] == 1).double().mean()) for k in (1, 3, 5)}


def facts_of(dataset: Dataset, federation: Federation, examples: ExampleSplit, held: Tensor) -> dict[str, Any]:
    """Return the split in numbers."""
    sizes = federation.sizes()
    test = len(dataset.test_x) if dataset.test_x is not None else len(examples.test)
    unheld = sorted(set(range(len(federation.classes))) - set(held.tolist()))
    return {
        "labels": "positive",
        "rows": sizes,
        "examples": len(examples.train),
        "test_rows": [],
        "common_test_rows": test,
        "validation_rows": len(examples.validation),
        "rows_left_out": len(dataset) - len(examples.train) - len(examples.validation) - len(examples.test),
        "public_rows": 0,
        "public_from": "nowhere",
        "trusted_rows": 0,
        "classes_at_nobody": [federation.classes[c] for c in unheld],
    }
