"""What an objective knows of all labels of a site reaches every batch of that site, and of no other."""

from __future__ import annotations

import torch

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.batch import Batch
from imperfed.core.labels import Annotated
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.local_training import plan
from imperfed.engine.site import site_context
from tests.support.toy import engine, world


def test_every_batch_carries_the_survey_of_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    seen = []
    for k in range(len(e.sizes)):
        data = e.runtime.site_data(k)
        expected = MaskedBCE().site_stats(data.labels)["weight"]
        site = site_context(e.runtime, k, plan(FedAvg(), e.runtime.spec.local, len(data.x), torch.Generator()))
        for batch in (site.batch, site.all_rows()):
            assert torch.equal(batch.site_stats["weight"], expected)
        seen.append(expected)
    assert not torch.equal(seen[0], seen[1])
    e.close()


def test_one_pass_for_all_sites_weighs_each_row_by_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    sites, p = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3])
    g, losses = weighted_gradient(e.runtime.spec, e.runtime.net, {}, Route.of(e.runtime.spec, sites), p)
    expected = torch.zeros_like(g)
    for i, k in enumerate(sites):
        data = e.runtime.site_data(k)
        batch = Batch.of(data.x, data.labels, torch.ones(len(data.x)), {}, {}, data.site_stats)
        loss = MaskedBCE().loss(e.runtime.net, batch)[0].mean()
        expected += p[i] * e.runtime.net.backward(loss)[: len(g)]
        torch.testing.assert_close(losses[i], loss.detach())
    torch.testing.assert_close(g, expected)
    e.close()
