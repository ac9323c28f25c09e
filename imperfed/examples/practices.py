"""Exact labels and a sensitive attribute that is sometimes in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, SensitiveColumn
from imperfed.examples.base import Contents, Example, unequal_sites

GROUPS = ("sex-1", "sex-2")
MEASURED = ("age", "bmi", "blood_pressure", "tc", "ldl", "hdl", "tch", "ltg", "glucose")
AMBIGUOUS = 0.3


class Practices(Example):
    """A sensitive attribute: four practices predict how a disease progresses; sex is recorded, sometimes as `a|b`."""

    name: ClassVar[str] = "practices"
    labels: ClassVar[str] = "exact"
    source: ClassVar[str] = "the diabetes data of scikit-learn (442 patients, nine measurements and sex)"
    made_up: ClassVar[str] = (
        "`fast` means that the disease progressed more than it did in half of the patients. The practices are made up, "
        "and in three rows of ten both groups are named. The data do not say which sex 1 and 2 are. The column "
        "`recorded_sex` is for evaluation only."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed run fedavg --data {folder} --rounds 20 --set fairness.target=sex-1 --set fairness.unprivileged=fast",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        from sklearn.datasets import load_diabetes

        data = load_diabetes(scaled=False)
        fast = data.target > np.median(data.target)
        practices = ("abbey", "bridge", "castle", "dock")
        tables = {}
        for practice, train, test in unequal_sites(fast.astype(np.int64), practices, 5.0, draw):
            for folder, rows in (("sites", train), ("test", test)):
                ids = {"id": [f"{practice}-{row:03}" for row in rows]}
                measured = dict(zip(MEASURED, np.delete(data.data[rows], 1, 1).T.tolist(), strict=True))
                tables[f"{folder}/{practice}.csv"] = (
                    ids
                    | measured
                    | groups(data.data[rows, 1].astype(int), draw)
                    | {"progression": np.where(fast[rows], "fast", "slow").tolist()}
                )
        declaration = Declaration(
            self.name,
            "sites/*.csv",
            id="id",
            test="test/*.csv",
            inputs=Inputs(MEASURED),
            labels=LabelColumns("exact", ("fast", "slow"), "progression"),
            attribute=SensitiveColumn("sex", GROUPS, truth="recorded_sex"),
        )
        return Contents(declaration, tables)


def groups(sex: np.typing.NDArray[np.int64], draw: np.random.Generator) -> dict[str, Sequence[Any]]:
    """Return the sensitive column, in which some rows name both groups, and the one recorded."""
    recorded = [GROUPS[number - 1] for number in sex]
    both = draw.random(len(sex)) < AMBIGUOUS
    return {
        "sex": ["|".join(GROUPS) if doubt else name for doubt, name in zip(both, recorded, strict=True)],
        "recorded_sex": recorded,
    }
