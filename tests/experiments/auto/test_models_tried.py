"""Which models `auto` tries on which inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import Tensor

from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.experiments.auto.combinations import combinations_to_try, prepared
from imperfed.experiments.auto.request import AutoRequest
from tests.experiments.auto.conftest import federation


def tried(x: Tensor, words: dict[str, str] | None = None) -> list[str]:
    data = FederatedData(replace(federation("exact"), x=x), Oracle(None, (), ()), {}, Scale.none())
    request = AutoRequest({}, words or {})
    return list(dict.fromkeys(one.model for one in combinations_to_try(request, prepared(request, data))))


def test_a_table_is_tried_with_bins_if_its_columns_are_standardised() -> None:
    x = federation("exact").x
    assert tried(x) == ["mlp", "mlp-ple", "logistic"]  # first the default, as if a method were named
    assert tried(1000 + x) == ["mlp", "logistic"]


@pytest.mark.parametrize("name", ["mlp", "mlp-ple"])
def test_a_model_that_is_named_is_the_only_one(name: str) -> None:
    assert tried(federation("exact").x, {"model.name": name}) == [name]
