"""One pass over the rows of all sites: its way through them is found once for the sites on duty."""

from __future__ import annotations

import pytest
import torch
from toy import engine, world

from imperfed.algorithms.fedaws import FedAwS
from imperfed.descend import Local
from imperfed.engine import together
from imperfed.engine.together import Route, weighted_gradient
from imperfed.labels import Positive


def test_the_way_is_kept_while_the_same_sites_are_on_duty() -> None:
    method = FedAwS(one_pass=True)
    e = engine(method, method.objective, world(Positive), Local())
    e.round(0)
    first = e.staff.route
    e.round(1)
    assert e.staff.route is first
    some = engine(method, method.objective, world(Positive), Local(), participation=0.5)
    for number in range(3):
        assert some.round(number).who == some.staff.route.sites


def test_parts_of_any_size_give_one_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    method = FedAwS(one_pass=True)
    e = engine(method, method.objective, world(Positive), Local())
    sites, p, found = (0, 2, 3), torch.tensor([0.2, 0.5, 0.3]), []
    for size in (together.PART, 7, 1):
        monkeypatch.setattr(together, "PART", size)
        route = Route.of(e.bench.job, sites)
        assert all(len(part.examples) <= size for part in route.parts)
        found.append(weighted_gradient(e.bench.job, e.bench.net, {}, route, p))
    for g, losses in found[1:]:
        torch.testing.assert_close(g, found[0][0])
        torch.testing.assert_close(losses, found[0][1])
