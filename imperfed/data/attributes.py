"""Sensitive attributes: input columns that name the groups a row may belong to, and may be as ambiguous as labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute
from imperfed.data.corruption.candidates.flip import FlippedSets
from imperfed.data.dataset import Dataset
from imperfed.data.generator import check_share


def with_attribute(
    dataset: Dataset, members: Tensor | None, test_members: Tensor | None, groups: tuple[str, ...] | None, where: str
) -> Dataset:
    """Return the dataset with the groups of its rows, if there are any, appended as the last columns of its inputs."""
    if members is None:
        return dataset
    groups = groups or tuple(map(str, range(members.shape[1])))
    if len(groups) != members.shape[1]:
        raise DataError(f"{where}, attribute_values: {len(groups)} names, but attribute has {members.shape[1]} columns")
    attribute, test_x = Attribute("attribute", groups, dataset.x.shape[-1]), dataset.test_x
    if test_x is not None:
        if test_members is None:
            raise DataError(f"{where}: the groups of the test rows are missing; add attribute_test")
        test_x = _joined(test_x, test_members, len(groups), f"{where}, attribute_test")
    x = _joined(dataset.x, members, len(groups), f"{where}, attribute")
    return replace(dataset, x=x, test_x=test_x, attribute=attribute)


def _joined(x: Tensor, members: Tensor, groups: int, where: str) -> Tensor:
    if x.ndim != 2 or members.shape != (len(x), groups):
        raise DataError(
            f"{where}: shape {tuple(members.shape)}, expected one row for each of the {len(x)} rows of a table of "
            f"features and one column for each of the {groups} groups"
        )
    return torch.cat([x, members.float()], 1)


def true_groups(x: Tensor, attribute: Attribute | None) -> Tensor | None:
    """Return the one group of every row, int64 [n]; None if any row names several groups, so the truth is unknown."""
    members = None if attribute is None else attribute.of(x)
    return None if members is None or bool((members.sum(1) != 1).any()) else members.argmax(1)


def leave_unscaled(mean: Tensor, spread: Tensor, attribute: Attribute | None) -> None:
    """Exempt the columns of an attribute from standardisation, in place: they must stay 0 and 1."""
    if attribute is not None:
        attribute.of(mean[None]).zero_()
        attribute.of(spread[None]).fill_(1.0)


def group_facts(x: Tensor, attribute: Attribute | None) -> dict[str, Any]:
    """Return the rows per possible group and the mean number of groups per row; empty without an attribute."""
    if attribute is None:
        return {}
    groups = attribute.of(x)
    counts = dict(zip(attribute.values, groups.sum(0).int().tolist(), strict=True))
    return {"attribute": attribute.name, "groups": counts, "mean_groups": float(groups.sum(1).mean())}


def blur(dataset: Dataset, q: float, generator: np.random.Generator) -> Dataset:
    """Return the dataset as the sites see it: each wrong group joins a row's true group with probability q.

    Groups that are already ambiguous in the data are left as they are. Test rows are blurred like training rows.
    """
    attribute = dataset.attribute
    if attribute is None or true_groups(dataset.x, attribute) is None:
        return dataset
    check_share("attribute_flip", q)
    x = _blurred(dataset.x, attribute, q, generator)
    test_x = None if dataset.test_x is None else _blurred(dataset.test_x, attribute, q, generator)
    return replace(dataset, x=x, test_x=test_x)


def _blurred(x: Tensor, attribute: Attribute, q: float, generator: np.random.Generator) -> Tensor:
    groups = attribute.of(x).argmax(1).numpy()
    sets = FlippedSets(q, edge="raw").draw(groups, len(attribute.values), generator)
    blurred = x.clone()
    attribute.of(blurred).copy_(torch.from_numpy(sets))
    return blurred
