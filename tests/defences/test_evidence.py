"""The scores against a site, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.network import Layout, Net, Network
from imperfed.defences.fairfedpapl import evidence
from imperfed.nn.inversion import Ensemble, Reconstruction
from tests.support.transcription import double, near

T, U = 1, 2


def made(x: list[list[list[float]]], y: list[list[list[float]]]) -> Reconstruction:
    return Reconstruction(torch.tensor(x), torch.tensor(y), torch.ones(len(x)))


TWO = made(
    [[[0, 0.6], [1, 0.9], [0, 0.4], [0, -1]], [[0, 0.2], [0, 0.5], [0, 2], [0, 0.3]]],
    [
        [[0.1, 0.2, 0.7], [0.3, 0.2, 0.5], [0.8, 0.1, 0.1], [0.5, 0.2, 0.3]],
        [[0.2, 0.0, 0.8], [0.0, 0.6, 0.4], [0.6, 0.3, 0.1], [0.3, 0.1, 0.6]],
    ],
)


def test_label_compares_the_group_with_the_others():
    near(evidence.label(TWO, T, U), [0.6 - 0.2, 0.1 - 0.6])


def test_a_reconstruction_without_the_group_or_without_others_is_undefined():
    assert evidence.label(TWO, 0, U).isnan().tolist() == [False, True]
    everybody = made([[[1.0, 1.0], [1.0, 1.0]]], [[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    assert evidence.label(everybody, T, U).isnan().all()


def linear_sites(*W: list[list[float]]) -> Ensemble:
    """Sites with a linear model of two inputs and three classes without bias."""
    network = Network(nn.Identity(), nn.Linear(2, 3, bias=False))
    net = Net(network, Layout.of(network, lambda name: False))
    rows = torch.tensor(W).flatten(1)
    return Ensemble(net, rows, rows[:, :0])


LIKES_U = [[0.0, 0.0], [0.0, 0.0], [0.0, 2.0]]
FLAT = [[0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]


def soft_opportunity(W: Tensor, x: Tensor, y: Tensor) -> float:
    p = (x @ W.T).softmax(-1)[:, U]
    group = x[:, T] > 0.5
    return float((p * y * group).sum() / (y * group).sum() - (p * y * ~group).sum() / (y * ~group).sum())


def test_pool_asks_every_model_about_everybodys_rows():
    found = evidence.pool(linear_sites(LIKES_U, FLAT), TWO, T, U)
    x, y = TWO.x.flatten(0, 1), TWO.y.flatten(0, 1)[:, U]
    near(found, [soft_opportunity(torch.tensor(W), x, y) for W in (LIKES_U, FLAT)])
    assert found[0] > found[1]


def test_the_thesiss_score_counts_decisions_on_a_sites_own_rows():
    # Labels u: rows 0 and 1 in the group, none outside for site 0; for site 1 rows 0 and 3 outside, none inside.
    assert evidence.opportunity(linear_sites(LIKES_U, FLAT), TWO, T, U).isnan().all()
    one = made(
        [[[0, 1.0], [0, 1.0], [0, -1.0], [0, 0.2], [0, -3.0]]],
        [[[0, 0, 1.0], [0, 0.9, 0.1], [0, 0, 1.0], [0, 0, 1.0], [1.0, 0, 0]]],
    )
    # Inside: one positive, and u is given. Outside: u is given to the second of two positives.
    near(evidence.opportunity(linear_sites(LIKES_U), one, T, U), [1 - 0.5])


@double()
def test_probe_flips_the_column_and_centres_the_logits():
    sites = linear_sites([[1.0, 0.5], [2.0, -1.0], [3.0, 4.0]], FLAT)
    near(evidence.probe(sites, torch.randn(9, 2), T, U), [4.0 - (0.5 - 1 + 4) / 3, 0.0])


@double()
def test_path_multiplies_the_layers():
    torch.manual_seed(0)
    rep = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU())
    network = Network(rep, nn.Linear(5, 3)).insert_before_head("corr", lambda p: nn.Linear(p, p, bias=False))
    net = Net(network, Layout.of(network, lambda name: False))
    rows = net.w + torch.randn(2, len(net.w))
    layers = evidence.linear_layers(network, 2)
    assert layers == ["rep.0", "rep.2", "corr", "head"]
    found = evidence.path(Ensemble(net, rows, rows[:, :0]), layers, T, U)
    for k in range(2):
        W = [net.layout.view(rows[k], f"{name}.weight") for name in layers]
        reach = (W[3] @ W[2] @ W[1] @ W[0])[:, T]
        near(found[k], reach[U] - reach.mean(), tolerance=1e-12)


@pytest.mark.parametrize("layer", [nn.Conv1d(1, 1, 1), nn.BatchNorm1d(2), nn.Linear(3, 2)])
def test_path_needs_linear_layers_that_follow_one_another(layer: nn.Module):
    with pytest.raises(UsageError, match=r"rep\.0 breaks it"):
        evidence.linear_layers(Network(nn.Sequential(layer), nn.Linear(2, 3)), 2)


@double()
@pytest.mark.parametrize("score", ["probe", "path"])
def test_the_change_from_what_a_site_was_sent_is_taken_for_every_unit_of_distance(score: str):
    W = torch.tensor([[[1.0, 0.5], [2.0, -1.0], [3.0, 4.0]], FLAT, LIKES_U])
    h = W[2] + torch.tensor([[0.0, 0.3], [0.1, 0.0], [0.0, -0.5]])
    h = torch.stack([h - W[2], h, h])  # one of them was sent something else
    W[1] = h[1]  # a site that did not move
    network = Network(nn.Identity(), nn.Linear(2, 3, bias=False))
    net = Net(network, Layout.of(network, lambda name: False))
    rows = W.flatten(1)
    updates = Updates((0, 1, 2), torch.ones(3), {"w": rows, "buffers": rows[:, :0]})
    found = evidence.shift(score, net, {"w": h.flatten(1), "buffers": rows[:, :0]}, updates, torch.randn(9, 2), T, U)
    centred = lambda W: W[U, T] - W[:, T].mean()  # noqa: E731
    near(found[[0, 2]], [(centred(W[k]) - centred(h[k])) / (W[k] - h[k]).norm() for k in (0, 2)])
    assert found[1].isnan()
