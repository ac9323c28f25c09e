"""What an objective knows of all labels of a site reaches every batch of that site, and of no other."""

from __future__ import annotations

import pytest
import torch

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch
from imperfed.core.objective import Objective
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.local_training import plan
from imperfed.testing.toy import differences, engine, world
from tests.support.methods import objectives

KNOWING = [objective for objective in objectives() if objective.has_site_stats]


@pytest.mark.parametrize("objective", KNOWING, ids=lambda o: o.name)
def test_every_batch_carries_the_stats_of_its_own_site(objective: Objective) -> None:
    e = engine(Algorithm(), objective, world(objective.labels))
    seen = []
    for k in range(len(e.population.sizes)):
        site = e.population.site(k)
        expected = objective.site_stats(site.data.labels)
        first = plan(Algorithm(), objective, e.population.spec.local, len(site.data.x), torch.Generator())
        context = e.population.runtime.context(site, dict(e.state.server), first)
        for batch in (context.batch, context.all_rows()):
            assert not differences(batch.site_stats, expected)
        seen.append(expected)
    assert differences(seen[0], seen[1])
    e.close()


@pytest.mark.parametrize("objective", [o for o in KNOWING if o.row_independent], ids=lambda o: o.name)
def test_one_pass_for_all_sites_weighs_each_row_by_its_own_site(objective: Objective) -> None:
    e = engine(Algorithm(), objective, world(objective.labels))
    sites, p = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3])
    fed, net = e.population.federation, e.population.runtime.net
    route = Route.of(fed, objective, sites)
    g, losses = weighted_gradient(e.population.spec, fed.x, fed.labels, net, e.state.rows, route, p)
    expected = torch.zeros_like(g)
    for i, k in enumerate(sites):
        data = e.population.site(k).data
        batch = Batch.of(data.x, data.labels, torch.ones(len(data.x)), data.rows, {}, data.site_stats)
        loss = objective.loss(net, batch)[0].mean()
        expected += p[i] * net.backward(loss)[: len(g)]
        torch.testing.assert_close(losses[i], loss.detach())
    torch.testing.assert_close(g, expected)
    e.close()
