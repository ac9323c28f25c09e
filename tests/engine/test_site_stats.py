"""What an objective knows of all labels of a site reaches every batch of that site, and of no other."""

from __future__ import annotations

import torch

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.batch import Batch
from imperfed.core.labels import Annotated
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.local_training import plan
from tests.support.toy import engine, world


def test_every_batch_carries_the_survey_of_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    seen = []
    for k in range(len(e.population.sizes)):
        site = e.population.site(k)
        expected = MaskedBCE().site_stats(site.data.labels)["weight"]
        first = plan(FedAvg(), e.population.spec.local, len(site.data.x), torch.Generator())
        context = e.population.runtime.context(site, dict(e.state.server), first)
        for batch in (context.batch, context.all_rows()):
            assert torch.equal(batch.site_stats["weight"], expected)
        seen.append(expected)
    assert not torch.equal(seen[0], seen[1])
    e.close()


def test_one_pass_for_all_sites_weighs_each_row_by_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    sites, p = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3])
    fed, net = e.population.federation, e.population.runtime.net
    route = Route.of(fed, MaskedBCE(), sites)
    g, losses = weighted_gradient(e.population.spec, fed.x, fed.labels, net, {}, route, p)
    expected = torch.zeros_like(g)
    for i, k in enumerate(sites):
        data = e.population.site(k).data
        batch = Batch.of(data.x, data.labels, torch.ones(len(data.x)), {}, {}, data.site_stats)
        loss = MaskedBCE().loss(net, batch)[0].mean()
        expected += p[i] * net.backward(loss)[: len(g)]
        torch.testing.assert_close(losses[i], loss.detach())
    torch.testing.assert_close(g, expected)
    e.close()
