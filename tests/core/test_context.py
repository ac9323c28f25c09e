"""How many rows a network is given at once outside of training steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from imperfed.core import context
from imperfed.core.algorithm import Algorithm
from imperfed.core.context import SLICE, SiteContext, rows_at_once
from imperfed.core.labels import Exact
from imperfed.core.network import Net
from imperfed.core.objective import Objective
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local, Plan
from imperfed.testing.toy import Plain, engine, network, world

META = torch.device("meta")


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 28, 28), 1337), ((3, 224, 224), SLICE), ((10,), 8192), ((2, 8, 8), 8192)], ids=str
)
def test_a_device_takes_as_many_rows_as_a_megabyte_of_numbers_has(shape: tuple[int, ...], rows: int) -> None:
    assert rows_at_once(torch.empty(5, *shape, device=META)) == rows
    assert rows_at_once(torch.empty(5, *shape)) == SLICE
    assert rows_at_once(torch.empty(5, *shape), 7) == 7


class Together(Plain):
    """An objective whose loss depends on which rows are together."""

    name = "together"
    row_independent = False


def at_site(e: Engine) -> SiteContext:
    site = e.population.site(3)
    down = {"w": e.state.server["w"], "buffers": e.state.server["buffers"]}
    rows = Plan(torch.arange(8)[None], {})
    return e.population.runtime.context(site, down, rows)


@pytest.mark.parametrize(
    ("net", "objective", "sizes"),
    [(network(), Plain(), [600]), (network(nn.BatchNorm1d(8)), Plain(), [200] * 3), (network(), Together(), [200] * 3)],
    ids=["by rows", "normalised", "together"],
)
def test_more_rows_at_once_only_where_they_do_not_matter_to_each_other(
    net: Net, objective: Objective, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = world(Exact, sizes=(12, 20, 31, 600))
    e = engine(Algorithm(), objective, data, Local(batch=8), net)
    few = at_site(e).full_gradient().clone()
    assert [len(batch.x) for batch in at_site(e).slices()] == [200] * 3

    def as_on_a_gpu(x: Tensor, least: int = SLICE) -> int:
        return 8192

    monkeypatch.setattr(context, "rows_at_once", as_on_a_gpu)
    assert [len(batch.x) for batch in at_site(e).slices()] == sizes
    torch.testing.assert_close(at_site(e).full_gradient(), few)
