from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from imperfed.algorithms.fedpsl import FedPSL, half
from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.batch import Batch
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Annotated
from imperfed.core.network import Layout, Net
from imperfed.engine.local_training import Local
from imperfed.testing.toy import Watched, engine, network, world
from tests.support.averaging import EQUAL, LOCAL, assert_composes, assert_same_models, learn
from tests.support.bowls import THREE, Bowl, Hand, bowls, keeping_the_head, stretched
from tests.support.transcription import double, near, tiny_net

PARTS = [(True, True), (True, False), (False, True), (False, False)]

# -- Eq. 9 -------------------------------------------------------------------------------------------------------------


def merged(method: FedPSL, counts: list[list[float]], n: list[float], round: int = 0) -> tuple[Any, ...]:
    """The server's tree before and after, three answers of random weights, and the hall, for four classes."""
    net = Net(network(), Layout.of(network(), lambda name: False))
    w = torch.randn(4, len(net.w), generator=torch.Generator().manual_seed(0))
    server = {"w": w[3], "buffers": torch.zeros(0)}
    trees = {"w": w[:3], "buffers": torch.zeros(3, 0), "annotated": torch.tensor(counts)}
    context = ServerContext(net, torch.zeros(0), round, 0.1, torch.Generator(), classes=("a", "b", "c", "d"))
    return server, method.merge(server, Updates((0, 1, 2), torch.tensor(n), trees), context), w, context


COUNTS = [[10.0, 4.0, 0.0, 0.0], [0.0, 6.0, 0.0, 0.0], [20.0, 30.0, 30.0, 0.0]]
N = [10.0, 6.0, 30.0]


def test_features_are_merged_by_rows_and_each_class_by_its_annotations():
    _, new, w, context = merged(FedPSL(), COUNTS, N)
    layout, n = context.net.layout, torch.tensor(N)
    near(layout.view(new["w"], "rep.0.weight"), torch.einsum("k,k...->...", n / 46, layout.view(w[:3], "rep.0.weight")))
    for name in ("head.weight", "head.bias"):
        phi, sent = layout.view(new["w"], name), layout.view(w[:3], name)
        near(phi[0], 10 / 30 * sent[0, 0] + 20 / 30 * sent[2, 0])
        near(phi[1], 4 / 40 * sent[0, 1] + 6 / 40 * sent[1, 1] + 30 / 40 * sent[2, 1])
        near(phi[2], sent[2, 2])


def test_a_class_that_nobody_annotates_keeps_its_row_and_is_named_once():
    server, new, _, context = merged(FedPSL(), COUNTS, N)
    for name in ("head.weight", "head.bias"):
        assert torch.equal(context.net.layout.view(new["w"], name)[3], context.net.layout.view(server["w"], name)[3])
    assert [note for note in context.notes if "annotates d:" in note] == context.notes != []
    assert merged(FedPSL(), COUNTS, N, round=1)[3].notes == []


def test_a_claim_counts_for_no_more_annotations_than_rows_and_no_fewer_than_none():
    claims = [[10.0, 4.0, 0.0, 0.0], [-5.0, 6.0, 0.0, 0.0], [20.0, 1e9, 1e9, 0.0]]
    assert torch.equal(merged(FedPSL(), claims, N)[1]["w"], merged(FedPSL(), COUNTS, N)[1]["w"])


def test_without_tdma_all_weights_are_merged_by_rows():
    _, new, w, _ = merged(FedPSL(tdma=False), COUNTS, N)
    near(new["w"], torch.tensor(N) / 46 @ w[:3], tolerance=1e-6)


def test_counts_of_annotations_come_up_and_nothing_else():
    e = engine(FedPSL(), MaskedBCE(), world(Annotated, (12, 20, 31))).go()
    known = [e.population.site(k).data.labels.values >= 0 for k in range(3)]
    assert torch.equal(e.seen[0]["annotated"], torch.stack([k.sum(0).float() for k in known]))
    assert set(e.seen[0].trees) == {"w", "buffers", "annotated"}
    without = engine(FedPSL(tdma=False), MaskedBCE(), world(Annotated, (12, 20, 31))).go()
    assert set(without.seen[0].trees) == {"w", "buffers"}


def test_where_no_label_is_missing_tdma_is_averaging():
    plain, by_class = (learn(FedPSL(tdma=tdma, tadl=False), LOCAL) for tdma in (False, True))
    assert_same_models(by_class, plain, tolerance=1e-6)


# -- Alg. 1 ------------------------------------------------------------------------------------------------------------

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = Annotated(torch.randint(-1, 2, (8, 4), generator=torch.Generator().manual_seed(2)).to(torch.int8), 4)


def step_of(method: FedPSL, lr: float = 0.05) -> LocalStep:
    """A network with features of its own and eight rows; four of them train and four validate."""
    net = tiny_net(method)
    batch = Batch.of(X, Y, torch.ones(8), {}, {}, MaskedBCE().site_stats(Y))
    return LocalStep(net, batch, {}, {}, method.init_optimizer(net.w, {}, {}), lr, 0.9, 0.0)


def meta_gradient(method: FedPSL) -> torch.Tensor:
    """The gradient behind the first step of theta: Adam's first moment is a tenth of it."""
    step = step_of(method)
    method.local_step(MaskedBCE(), step)
    return step.opt_state["m"][: step.net.layout.fields["head.weight"].offset] / 0.1


@double()
def test_the_second_order_gradient_is_that_of_the_loss_one_step_ahead():
    a, lr, eps = 0.5, 0.05, 1e-6
    step = step_of(FedPSL())
    net, cut = step.net, step.net.layout.fields["head.weight"].offset
    train, val = half(step.batch, 0), half(step.batch, 1)

    def gradient_at(w: torch.Tensor) -> torch.Tensor:
        w = w.clone().requires_grad_()
        return torch.autograd.grad(train.mean(MaskedBCE().loss(net.through(w), train)[0]), w)[0]

    start = net.w.clone()
    phi = start[cut:] - lr * gradient_at(start)[cut:].sign()  # Adam's first step is as long as lr, up to its epsilon

    def one_step_ahead(theta: torch.Tensor) -> float:
        w = torch.cat([theta, start[cut:]])
        ahead = torch.cat([theta - a * gradient_at(w)[:cut], phi])
        return val.mean(MaskedBCE().loss(net.through(ahead), val)[0]).item()

    numeric = []
    for i in range(cut):
        e = torch.zeros(cut)
        e[i] = eps
        numeric.append((one_step_ahead(start[:cut] + e) - one_step_ahead(start[:cut] - e)) / (2 * eps))
    second, first = (meta_gradient(FedPSL(a=a, order=order)) for order in (2, 1))
    near(second, numeric, tolerance=1e-6)
    assert (first - second).abs().max() > 1e-3


@double()
def test_without_an_inner_step_the_orders_agree():
    near(meta_gradient(FedPSL(a=0.0)), meta_gradient(FedPSL(a=0.0, order=1)), tolerance=1e-12)
    assert not torch.equal(meta_gradient(FedPSL(a=0.0)), meta_gradient(FedPSL(a=0.1)))


@double()
def test_the_head_learns_from_the_first_half_and_the_features_from_the_second():
    other = Y.values.clone()
    for rows, head_moves in ((slice(0, None, 2), True), (slice(1, None, 2), False)):
        one, two = step_of(FedPSL(a=0.0)), step_of(FedPSL(a=0.0))
        changed = other.clone()
        changed[rows] = 1 - changed[rows].clamp(min=0)
        two.batch = replace(two.batch, labels=Annotated(changed, 4))
        for step in (one, two):
            FedPSL(a=0.0).local_step(MaskedBCE(), step)
        cut = one.net.layout.fields["head.weight"].offset
        m_one, m_two = one.opt_state["m"], two.opt_state["m"]
        assert torch.equal(m_one[cut:], m_two[cut:]) != head_moves


def test_padding_behind_a_batch_moves_no_row_into_the_other_half():
    real = torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 0])
    labels = Annotated(torch.zeros(8, 4, dtype=torch.int8), 4)
    x = torch.arange(8.0)
    train, val = (half(Batch.of(x, labels, real, {}, {}), first) for first in (0, 1))
    assert [b.x[b.real > 0].tolist() for b in (train, val)] == [[0, 2, 4], [1, 3]]
    near(train.share, [1 / 3, 1 / 3, 1 / 3, 0])
    alone = half(Batch.of(x[:1], labels.between(0, 1), real[:1], {}, {}), 1)
    assert alone.mean(torch.zeros(0)).item() == 0  # a lone row leaves nothing to validate on


# -- whole runs --------------------------------------------------------------------------------------------------------


def test_with_both_parts_off_a_site_takes_torchs_adam_steps():
    local = replace(LOCAL, steps=4, batch=64)  # every step sees all rows
    e = learn(FedPSL(tdma=False, tadl=False), local, (20,), rounds=1)
    net, objective, data = network(), e.population.spec.objective, e.population.site(0).data
    adam = torch.optim.Adam(net.parameters(), lr=local.lr, weight_decay=local.weight_decay)
    for _ in range(4):
        adam.zero_grad()
        batch = Batch.of(data.x, data.labels, torch.ones(20), {}, {})
        objective.loss(net, batch)[0].mean().backward()
        adam.step()
    for name, p in net.named_parameters():
        near(e.model(0)[name], p, tolerance=2e-6)


class Moments:
    """Adam in NumPy, over one vector."""

    def __init__(self, size: int) -> None:
        self.m, self.v, self.t = np.zeros(size), np.zeros(size), 0

    def __call__(self, g: np.ndarray, lr: float) -> np.ndarray:
        self.t += 1
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g**2
        return lr * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


KNOWN = (2, 1, 3)  # rows of each site that are annotated; the sites hold 2, 3 and 5
UNEVEN = Local(steps=3, batch=3, lr=0.1, weight_decay=0.05)


def scarce(method: FedPSL) -> Watched:
    """The three sites of `bowls.three` with some rows not annotated, two of them a round; 2 or 3 rows a batch."""
    federation, oracle = bowls(*THREE)
    values = torch.full((10, 1), -1, dtype=torch.int8)
    for first, known in zip(federation.starts, KNOWN, strict=False):
        values[first : first + known] = 0
    data = replace(federation, labels=Annotated(values, 1)), oracle
    return engine(method, Bowl(), data, UNEVEN, stretched(), rounds=4, participation=2 / 3).go()


def decoupled(hand: Hand, k: int, w: np.ndarray, rows: np.ndarray, method: FedPSL, adams: list[Moments]) -> np.ndarray:
    """Lines 4 to 9 for theta = u and phi = h, where H = mean(a) h^2 on the diagonal."""
    u, h = np.split(w, 2)
    g = hand.g(k, w, rows[::2])
    ahead = u - method.a * g[:2]
    h_new = h - adams[1](g[2:] + UNEVEN.weight_decay * h, UNEVEN.lr)
    g_val = hand.g(k, np.concatenate([ahead, h_new]), rows[1::2])[:2] if len(rows) > 1 else np.zeros(2)
    if method.order == 2:
        g_val = g_val - method.a * hand.rows[k][rows[::2], 0].mean() * h**2 * g_val
    return np.concatenate([u - adams[0](g_val + UNEVEN.weight_decay * u, UNEVEN.lr), h_new])


def transcription(hand: Hand, method: FedPSL) -> Hand:
    for t, who in hand.rounds:
        ends = []
        for k in who:
            w, adams, whole = np.concatenate([hand.x, hand.own[k]]), [Moments(2), Moments(2)], Moments(4)
            for rows in hand.batches(t, k):
                if method.tadl:
                    w = decoupled(hand, k, w, rows, method, adams)
                else:
                    w = w - whole(hand.g(k, w, rows) + UNEVEN.weight_decay * w, UNEVEN.lr)
            ends.append(w)
            hand.own[k] = w[hand.S :]
        sent = np.stack(ends)[:, : hand.S]
        hand.x = hand.p(who) @ sent
        if method.tdma and hand.S == 4:
            known = np.array(KNOWN, dtype=float)[list(who)]
            hand.x[2:] = known / known.sum() @ sent[:, 2:]
    return hand


@double()
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("tdma", "tadl"), PARTS)
def test_four_rounds_of_unequal_clients_with_one_absent(tdma: bool, tadl: bool, order: int, personal: bool):
    method = FedPSL(tdma=tdma, tadl=tadl, order=order, a=0.3)
    e = scarce(keeping_the_head(method) if personal else method)
    assert {k for report in e.reports for k in report.who} == {0, 1, 2}
    assert {len(rows) for t, who in Hand(e).rounds for k in who for rows in Hand(e).batches(t, k)} == {2, 3}
    hand = transcription(Hand(e), method)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


@pytest.mark.parametrize(("tdma", "tadl"), PARTS)
def test_it_composes(tdma: bool, tadl: bool):
    """`assert_composes` wants every answer as long as the shared weights, and TDMA's counts are not."""
    if tdma:
        e = engine(keeping_the_head(FedPSL(tadl=tadl)), MaskedBCE(), world(Annotated)).go()
        assert e.seen[-1]["w"].shape[1] < len(e.population.runtime.net.w)
    else:
        assert_composes(FedPSL(tdma=False, tadl=tadl))


def test_networks_that_normalise_over_a_batch_can_be_differentiated_twice():
    runs = [
        learn(FedPSL(order=order, a=0.5), LOCAL, EQUAL, net=network(torch.nn.BatchNorm1d(8)), rounds=1)
        for order in (1, 2)
    ]
    assert not any(report.failures for run in runs for report in run.reports)
    assert not torch.equal(runs[0].state.server["w"], runs[1].state.server["w"])
    assert (runs[0].state.server["buffers"] != 0).all()


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.a"):
        FedPSL(a=-1.0)
