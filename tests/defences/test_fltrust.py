"""FLTrust: the numbers of its definition, through the context that a server gives it, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.ifca import IFCA
from imperfed.algorithms.scaffold import Scaffold
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.defences.fltrust import FLTrust, cosine, trusted_mean
from imperfed.testing.toy import Plain, engine, world

START = torch.tensor([5.0, -1.0])
MOVED = torch.tensor([[2.0, 4.0], [1.0, 0.0], [-3.0, 1.0], [-1.0, -1.0]])
OWN = torch.tensor([1.0, 2.0])


def inspected(moved: torch.Tensor, alpha: float = 1.0) -> tuple[Updates | None, ServerContext]:
    """Let it inspect these updates, where the server's own update is (1, 2)."""
    n = len(moved)
    sent = {"w": START.expand(n, -1), "buffers": torch.zeros(n, 1)}
    updates = Updates(
        tuple(range(n)), torch.ones(n), {"w": START + moved, "buffers": torch.arange(1.0, n + 1)[:, None]}
    )
    context = ServerContext(None, START, 0, 0.1, torch.Generator())  # type: ignore[arg-type]
    context.train = lambda down: SimpleNamespace(net=SimpleNamespace(w=down["w"] + OWN))  # type: ignore[assignment, return-value]
    return FLTrust(alpha).inspect({}, sent, updates, context)[0], context


def test_the_numbers_of_its_definition() -> None:
    assert cosine(MOVED, OWN).tolist() == pytest.approx([1, 0.447214, -0.141421, -0.948683], abs=1e-6)
    share = torch.tensor([1, 0.447214, 0, 0], dtype=torch.float64)
    assert trusted_mean(MOVED, OWN, share / share.sum()).tolist() == pytest.approx([1.381966, 1.381966], abs=1e-6)


def test_every_answer_becomes_the_trusted_mean() -> None:
    kept, context = inspected(MOVED)
    assert kept is not None
    assert (kept["w"] - START).tolist() == [pytest.approx([1.381966, 1.381966], abs=1e-5)] * 4
    assert kept["buffers"][0].item() == pytest.approx((1 + 2 * 0.447214) / 1.447214, abs=1e-6)
    assert [v.out for v in context.verdicts] == [False, False, True, True]
    assert [v.confidence for v in context.verdicts] == pytest.approx([1, 0.447214, 0, 0], abs=1e-6)
    half, _ = inspected(MOVED, alpha=0.5)
    assert half is not None
    assert (half["w"][0] - START).tolist() == pytest.approx([0.690983, 0.690983], abs=1e-5)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_updates_count_at_the_length_of_the_servers_own(unit: float) -> None:
    """However long a site's update is, its direction alone matters; cosines do not depend on any length."""
    share = torch.tensor([1, 0.447214, 0, 0], dtype=torch.float64) / 1.447214
    assert trusted_mean(unit * MOVED, OWN, share).tolist() == pytest.approx([1.381966, 1.381966], abs=1e-5)
    assert cosine(unit * MOVED, OWN).tolist() == pytest.approx([1, 0.447214, -0.141421, -0.948683], abs=1e-6)
    assert trusted_mean(MOVED, unit * OWN, share).tolist() == pytest.approx([1.381966 * unit] * 2, rel=1e-5)


def test_nobody_to_trust_and_updates_without_length() -> None:
    assert inspected(-MOVED[:1])[0] is None
    assert inspected(torch.zeros(2, 2))[0] is None
    kept, _ = inspected(torch.tensor([[0.0, 0.0], [2.0, 4.0]]))
    assert kept is not None
    torch.testing.assert_close(kept["w"][0], START + OWN)


def test_it_trains_on_the_servers_rows_as_sites_do() -> None:
    data = world(Exact)
    e = engine(FedAvg(), Plain(), data, rounds=1)
    e.server.defence = FLTrust()
    before = e.state.server["w"].clone()
    own = e.server.contexts(0)[0].train({"w": before, "buffers": e.state.server["buffers"]}).net.w - before
    e.go()
    moved = e.state.server["w"] - before
    assert 0.2 < moved.norm() / own.norm() <= 1 + 1e-5
    assert torch.cosine_similarity(moved, own, 0) > 0.5


def test_what_it_refuses() -> None:
    federation, _ = world(Exact)
    with pytest.raises(UsageError, match=r"fltrust compares updates with the server's own: .*split.trusted"):
        FLTrust().check(replace(federation, trusted=None), FedAvg(), 4)
    with pytest.raises(UsageError, match="under scaffold these need more than"):
        FLTrust().check(federation, Scaffold(), 4)
    with pytest.raises(UsageError, match="under ifca they train different models"):
        FLTrust().check(federation, IFCA(), 4)
    with pytest.raises(UsageError, match=r"defence\.alpha"):
        FLTrust(alpha=0)
