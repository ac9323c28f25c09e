"""FLAG (reconstruction): its weights in the numbers of a worked example; and the loss that assumes negatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from imperfed.algorithms._head_rows import merged_rows
from imperfed.algorithms.assume_negative import AssumeNegative
from imperfed.algorithms.flag import FLAG, shares
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.labels import Positive, Positives
from imperfed.core.network import Layout, Net, Network
from imperfed.testing.toy import engine, world
from tests.support.transcription import Z, losses, near

COUNTS = torch.tensor([[8.0, 2, 0], [2, 2, 6]])
HEADS = torch.tensor([[[1.0, 0], [0, 1], [1, 1]], [[3, 0], [0, 3], [2, 2]]])
REST = torch.tensor([[10.0, 20], [30, 60]])


def merged(adapt: str, counts: Tensor = COUNTS) -> tuple[Tensor, Tensor, Tensor]:
    """What becomes of the head, its bias and everything else; the bias of class c is ten times its first weight."""
    network = Network(nn.Linear(1, 2, bias=False), nn.Linear(2, 3))
    net = Net(network, Layout.of(network, lambda name: False))
    w = torch.cat([REST, HEADS.flatten(1), 10 * HEADS[:, :, 0]], 1)
    trees = {"w": w, "buffers": w[:, :0], "positives": counts}
    context = ServerContext(net, torch.zeros(0, 1), 0, 0.1, torch.Generator())
    updates = Updates((0, 1), torch.tensor([10.0, 6]), trees)
    new = FLAG(adapt=adapt).merge({}, updates, context)["w"]  # type: ignore[arg-type]
    return new[2:8].view(3, 2), new[8:], new[:2]


def test_shares_of_classes() -> None:
    near(shares(COUNTS), [[0.8, 0.5, 0], [0.2, 0.5, 1]])
    near(shares(COUNTS * torch.tensor([1.0, 1, 0])), [[0.8, 0.5, 0.5], [0.2, 0.5, 0.5]])  # a class nobody has
    near(shares(torch.tensor([[1.0, 0], [0, 2]])), [[1, 0], [0, 1]])  # one row is enough
    near(shares(COUNTS).mean(1), [0.433333, 0.566667])


def test_robust_rules_may_mix_whole_models_only() -> None:
    assert FLAG(adapt="whole").not_mixable_because == ""
    assert all("by its rows of it" in FLAG(adapt=adapt).not_mixable_because for adapt in ("rows", "both"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("adapt", "head", "rest"),
    [
        ("rows", [[1.4, 0], [0, 2], [2, 2]], [0.625 * 10 + 0.375 * 30, 0.625 * 20 + 0.375 * 60]),
        ("both", [[1.4, 0], [0, 2], [2, 2]], [21.33333, 42.66667]),
        ("whole", [[2.133333, 0], [0, 2.133333], [1.566667, 1.566667]], [21.33333, 42.66667]),
    ],
)
def test_what_is_merged_by_class(adapt: str, head: list[list[float]], rest: list[float]) -> None:
    rows, bias, everything_else = merged(adapt)
    near(rows, head, 1e-5)
    near(bias, [10 * first for first, _ in head], 1e-4)
    near(everything_else, rest, 1e-4)


def test_what_is_not_there_or_stays_at_its_site_is_not_merged_by_class() -> None:
    q = shares(COUNTS)
    for head, stays, merged_by_class in (
        (nn.Linear(2, 3, bias=False), "no", ["head.weight"]),
        (nn.Linear(2, 3), "head.", []),
        (nn.Linear(2, 3), "head.bias", ["head.weight"]),
        (nn.Linear(2, 3), "no", ["head.weight", "head.bias"]),
    ):
        layout = Layout.of(Network(nn.Linear(1, 2), head), lambda name, stays=stays: name.startswith(stays))
        sent = torch.ones(2, layout.shared)
        assert [name for name, _ in merged_rows(sent, q, layout)] == merged_by_class


def test_no_site_claims_more_rows_than_it_has() -> None:
    exact, lying = (
        merged("rows", torch.tensor([[10.0, 0, 0], [6, 6, 6]])),
        merged("rows", torch.tensor([[900.0, -5, 0], [6, 6, 6]])),
    )
    assert all(torch.equal(a, b) for a, b in zip(exact, lying, strict=True))


@pytest.mark.parametrize("kind", [Positives, Positive])
def test_sites_count_their_positives(kind: type[Positives]) -> None:
    data = world(kind, (5, 9))
    e = engine(FLAG(), AssumeNegative(), data, rounds=1).go()
    counted = [data[0].labels.between(a, b).counts().positive for a, b in ((0, 5), (5, 14))]
    assert e.seen[-1]["positives"].tolist() == torch.stack(counted).tolist()
    assert (FLAG().adapt, FLAG().objective) == ("rows", AssumeNegative())


def test_classes_that_are_not_named_count_as_absent() -> None:
    p = 1 / (1 + np.exp(-Z.numpy()))
    several = Positives(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.bool), 4)
    y = several.values.numpy()
    expected = -np.where(y, np.log(p), np.log(1 - p)).mean(1)
    near(losses(AssumeNegative(), labels=several), expected)
    one = -np.where(np.eye(4, dtype=bool)[[1, 0, 3]], np.log(p), np.log(1 - p)).mean(1)
    near(losses(AssumeNegative(), labels=Positive(torch.tensor([1, 0, 3]), 4)), one)
