"""Classes that a site never annotates are left to what sites share."""

from __future__ import annotations

from dataclasses import replace

import torch

from imperfed.alone import SiteModel
from imperfed.alone.base import ModelPart
from imperfed.alone.examples import Always
from imperfed.core.federation import Federation
from imperfed.core.labels import Annotated
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.experiments.auto.combinations import combinations_to_try, missing_somewhere
from imperfed.experiments.auto.request import AutoRequest
from imperfed.results.mixture import Mixture
from tests.experiments.auto.conftest import federation


def methods(data: Federation) -> set[str]:
    whole = FederatedData(data, Oracle(None, (), ()), {}, Scale.none())
    return {one.method.partition("+")[0] for one in combinations_to_try(AutoRequest({}, {}), whole)}


def without(data: Federation, site: int, c: int) -> Federation:
    """The same rows, of which one site never annotates a class."""
    values = data.labels.values.clone()
    values[data.starts[site] : data.starts[site + 1], c] = -1
    return replace(data, labels=Annotated(values, 3))


def test_methods_with_a_head_at_each_site_are_not_tried_then() -> None:
    whole = federation("annotated")
    assert not missing_somewhere(whole)
    assert {"fedper", "local-only", "fedavg"} <= methods(whole)
    missing = without(whole, 1, 2)
    assert missing_somewhere(missing)
    assert methods(missing) == methods(whole) - {"fedper", "local-only"}


def test_only_the_federated_model_speaks_about_a_class_that_the_site_never_marked() -> None:
    parts = [ModelPart(Always(torch.tensor([1 - p, p])), torch.tensor([c]), True) for c, p in enumerate((0.9, 0.5))]
    logits = torch.tensor([[0.3, -1.2], [0.7, 2.0]])
    mixed = Mixture(SiteModel(2, tuple(parts)), 0.25).probabilities(logits, torch.zeros(2, 4), Annotated)
    shared = torch.sigmoid(logits)
    torch.testing.assert_close(mixed[:, 0], 0.25 * shared[:, 0] + 0.75 * 0.9)
    torch.testing.assert_close(mixed[:, 1], shared[:, 1])
