"""One pass over the rows of all sites: its way through them is found once for the sites on duty."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from imperfed.algorithms.iml import IML
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated, Exact
from imperfed.engine.backends import weighted_gradient as module
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.local_training import Local
from imperfed.testing.toy import OneStep, Plain, engine, world


def test_the_way_is_kept_while_the_same_sites_are_on_duty() -> None:
    e = engine(OneStep(), Plain(), world(Exact), Local())
    e.round(0)
    first = e.backend.route
    e.round(1)
    assert e.backend.route is first
    some = engine(OneStep(), Plain(), world(Exact), Local(), participation=0.5)
    for number in range(3):
        assert some.round(number).who == some.backend.route.sites


def test_parts_of_any_size_give_one_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    e = engine(OneStep(), Plain(), world(Exact), Local())
    spec, fed, net = e.population.spec, e.population.federation, e.population.runtime.net
    sites, p, results = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3]), []
    for size in (module.PART, 7, 1):
        monkeypatch.setattr(module, "PART", size)
        route = Route.of(fed, spec.objective, sites)
        assert all(len(part.examples) <= size for part in route.parts)
        results.append(weighted_gradient(spec, fed.x, fed.labels, net, e.state.rows, route, p))
    for g, losses in results[1:]:
        torch.testing.assert_close(g, results[0][0])
        torch.testing.assert_close(losses, results[0][1])


@pytest.mark.parametrize("size", [module.PART, 31, 7, 1])
def test_a_site_alone_gives_the_gradient_of_its_mean_loss(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all its rows, in parts or at once; site 2 has 31."""
    monkeypatch.setattr(module, "PART", size)
    e = engine(OneStep(), Plain(), world(Exact), Local())
    spec, net, site = e.population.spec, e.population.runtime.net, e.population.site(2)
    x, labels = site.data.x, site.data.labels
    loss = cross_entropy(net(x), labels.values)
    wanted = net.backward(loss).clone()
    rows = {name: t[:31] for name, t in e.state.rows.items()}
    g, losses = weighted_gradient(spec, x, labels, net, rows, Route.of_one(site.data), torch.ones(1))
    torch.testing.assert_close(g, wanted)
    assert losses.tolist() == pytest.approx([loss.item()])


def test_a_loss_that_depends_on_its_batch_has_none() -> None:
    with pytest.raises(UsageError, match="the loss of iml depends on which rows are together"):
        engine(OneStep(), IML(), world(Annotated), Local())
