"""What an objective knows of all labels of a site reaches every batch of that site, and of no other."""

from __future__ import annotations

import torch
from toy import engine, world

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core import Batch
from imperfed.descend import plan
from imperfed.engine.site import sit_down
from imperfed.engine.together import Route, weighted_gradient
from imperfed.labels import Annotated


def test_every_batch_carries_the_survey_of_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    seen = []
    for k in range(len(e.sizes)):
        shelf = e.bench.shelf(k)
        expected = MaskedBCE().survey(shelf.labels)["weight"]
        desk = sit_down(e.bench, k, plan(FedAvg(), e.bench.job.local, len(shelf.x), torch.Generator()))
        for batch in (desk.batch, desk.whole()):
            assert torch.equal(batch.survey["weight"], expected)
        seen.append(expected)
    assert not torch.equal(seen[0], seen[1])
    e.close()


def test_one_pass_for_all_sites_weighs_each_row_by_its_own_site() -> None:
    e = engine(FedAvg(), MaskedBCE(), world(Annotated))
    sites, p = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3])
    g, losses = weighted_gradient(e.bench.job, e.bench.net, {}, Route.of(e.bench.job, sites), p)
    expected = torch.zeros_like(g)
    for i, k in enumerate(sites):
        shelf = e.bench.shelf(k)
        batch = Batch.of(shelf.x, shelf.labels, torch.ones(len(shelf.x)), {}, {}, shelf.survey)
        loss = MaskedBCE().loss(e.bench.net, batch)[0].mean()
        expected += p[i] * e.bench.net.backward(loss)[: len(g)]
        torch.testing.assert_close(losses[i], loss.detach())
    torch.testing.assert_close(g, expected)
    e.close()
