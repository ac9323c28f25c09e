from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.laar import LAAR, Disambiguation, alignment, mixup
from imperfed.core.batch import Batch
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query, Train, Updates
from imperfed.core.labels import Candidates
from imperfed.core.network import Net
from imperfed.engine.local_training import Local, SiteData, plan, train_locally
from imperfed.nn.losses import masked_best, weighted_ce
from imperfed.testing.toy import LOCAL as TOY
from imperfed.testing.toy import engine, network, world
from tests.support.transcription import (
    UNIFORM,
    Answers,
    S,
    Y,
    Z,
    assert_stable,
    batch,
    double,
    losses,
    near,
    one_step,
    silent,
    tiny_net,
)

Q = torch.tensor([[0.495, 0.505, 0, 0], [0, 0.33, 0.34, 0.33], [0.495, 0, 0, 0.505]], dtype=torch.float64)
X = torch.tensor([[1.0, 0.5, -1.0], [0.3, -0.8, 0.2], [-1.0, 0.4, 0.9]])


# -- part 1: moving-average labels -------------------------------------------------------------------------------------


def test_labels_lean_towards_the_best_candidate_and_the_loss_uses_the_new_ones():
    near(Disambiguation().init_rows(S)["q"], UNIFORM)
    values, q = Disambiguation().loss(Answers(Z), batch(rows={"q": UNIFORM}))
    near(q, Q)
    near(values.mean(), 1.352434)
    assert Disambiguation().update_rows(silent, batch(), q)["q"] is q
    near(Disambiguation().infer_labels(-Z, S, {"q": Q}), Q)


def test_the_best_class_outside_the_set_is_never_picked():
    before, _, rows = one_step(Disambiguation(mu=0.0))
    torch.testing.assert_close(rows["q"], masked_best(before, Y))
    near(losses(Disambiguation(mu=0.0), {"q": UNIFORM}, z=-Z), losses(CC(), z=-Z) + inside_entropy(-Z))


def inside_entropy(z: Tensor) -> Tensor:
    """-log of the best candidate's share of its set: what a hard label pays above CC."""
    share = torch.softmax(z.masked_fill(~Y, -torch.inf), -1)
    return -share.amax(-1).log()


def test_extreme_logits_stay_finite():
    assert_stable(Disambiguation())


# -- part 2: MixUp -----------------------------------------------------------------------------------------------------

FROZEN = {0.0: [0.8, 1.1, 0.1, -0.5], 1.0: [0, 0.2, 1, 0.3], 0.7: [0.3, 0.5, 0.7, 0], 0.3: [0, 0, 0, 0]}
LOCAL = {0.7: [0.4, 0.5, 1.2, 0.1], 0.3: [0, 0, 0, 0]}


class Table:
    """A network that looks its logits up, frozen and local ones apart."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.look(LOCAL, x)

    in_passing = __call__

    def at(self, w: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        return self.look(FROZEN, x)

    def look(self, table: dict[float, list[float]], x: Tensor) -> Tensor:
        return torch.tensor([table[round(v, 6)] for v in x[:, 0].tolist()], dtype=torch.float64)


def test_mixup_numbers():
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    draws = {"gamma": torch.tensor(0.3, dtype=torch.float64), "keys": torch.tensor([0.9, 0.1])}
    step = LocalStep(Table(), batch(S.between(0, 2), x=x, draws=draws), {"w": x, "buffers": x}, {}, {}, 0.1, 0.0, 0.0)
    p = torch.softmax(torch.tensor([FROZEN[0.0], FROZEN[1.0], FROZEN[0.7]], dtype=torch.float64), -1).amax(-1)
    near(p, [0.432789, 0.432191, 0.334937])
    mixed = mixup(Q[:2], step)
    near(mixed[0], 0.212054)
    near(mixed[0] / 0.144817, 1.464293, tolerance=1e-5)
    near(mixed[1], (0.3 * p[1] + 0.7 * p[0]) * 0.25 * torch.tensor(4.0).log())  # equal logits: any q~ pays log 4


def make_step(net: Net, n: int, pad: int = 0, g: Tensor | None = None) -> LocalStep:
    """A step on the first n examples; padding repeats the last example and remembers nothing, as the engine does."""
    at = torch.arange(n + pad).clamp(max=n - 1)
    real = (torch.arange(n + pad) < n).to(net.w.dtype)
    rows = {"q": S.uniform()[at] * real[:, None]}
    draws = {"gamma": torch.tensor(0.3), "keys": torch.tensor([0.7, 0.2, 0.9, 0.1, 0.05, 0.3])[: n + pad]}
    b = Batch.of(X.to(net.w.dtype)[at], S.take(at), real, rows, draws)
    frozen = tiny_net(LAAR(), seed=7).w.clone()
    down = {"w": frozen, "buffers": frozen[:0], "g": torch.linspace(-1, 2, len(frozen)) if g is None else g}
    return LocalStep(net, b, down, {}, {"v": torch.zeros_like(net.w)}, 0.1, 0.9, 0.0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_is_invisible_in_every_term(n: int):
    net = tiny_net(LAAR())
    results = []
    for pad in (0, 2):
        loss, q = LAAR().step_loss(Disambiguation(), make_step(net, n, pad))
        results.append((loss.detach(), net.backward(loss).clone(), q[:n]))
    torch.testing.assert_close(results[0], results[1])


def test_padding_is_invisible_in_a_whole_round():
    method, labels = LAAR(), Candidates(Y[[0, 1, 2, 0, 1]], 4)
    x = torch.cat([X, X[:2].flip(1)])
    ends = []
    for pad in (False, True):
        net = tiny_net(method)
        down = {"w": net.w.clone(), "buffers": net.w[:0], "g": torch.linspace(-1, 2, len(net.w))}
        draws = plan(method, Disambiguation(), Local(epochs=2, batch=3), 5, torch.Generator().manual_seed(3))
        data = SiteData(x, labels, Disambiguation().init_rows(labels))
        _, loss, rows = train_locally(method, Disambiguation(), net, data, draws, down, {}, Local(batch=3), pad)
        ends.append((net.w.clone(), loss, rows["q"]))
    torch.testing.assert_close(ends[0], ends[1])


def test_draws_are_beta_and_come_from_the_generator():
    draws = LAAR().draws(40_000, 3, torch.Generator().manual_seed(1))
    again = LAAR().draws(40_000, 3, torch.Generator().manual_seed(1))
    gamma = draws["gamma"]
    assert torch.equal(gamma, again["gamma"])
    assert torch.equal(draws["keys"], again["keys"])
    assert draws["keys"].shape == (40_000, 3)
    assert ((gamma >= 0) & (gamma <= 1)).all()
    near(gamma.mean(), 0.5, tolerance=0.01)
    near(gamma.var(), 1 / (4 * (2 * 0.2 + 1)), tolerance=0.005)


# -- part 3: gradient alignment ----------------------------------------------------------------------------------------


def test_alignment_numbers():
    near(alignment(torch.tensor([1.0, 2, -1]), torch.tensor([0.5, 1, 1])), -0.408248)


@pytest.mark.parametrize(
    ("local", "world"), [([0.0, 0, 0], [0.5, 1, 1]), ([1.0, 2, -1], [0, 0, 0]), ([1e-9, 0, 0], [1, 0, 0])]
)
def test_alignment_is_zero_with_a_zero_gradient_where_a_vector_vanishes(local: list[float], world: list[float]):
    g_L = torch.tensor(local, requires_grad=True)
    loss = alignment(g_L, torch.tensor(world))
    assert loss.item() == 0
    (g,) = torch.autograd.grad(loss, g_L)
    assert (g == 0).all()


@double()
def test_the_gradient_of_all_three_terms_flows():
    net = tiny_net(LAAR())
    method = LAAR(lambda_mix=0.7, lambda_ga=1.3)
    step = make_step(net, 3)
    g = net.backward(method.step_loss(Disambiguation(), step)[0]).clone()
    numeric = torch.zeros_like(g)
    for i in range(len(g)):
        for sign in (1, -1):
            net.w[i] += sign * 1e-6
            numeric[i] += sign * method.step_loss(Disambiguation(), step)[0].detach() / 2e-6
            net.w[i] -= sign * 1e-6
    near(g, numeric, tolerance=1e-7)
    for without in (replace(method, lambda_ga=0.0), replace(method, lambda_mix=0.0)):
        assert (g - net.backward(without.step_loss(Disambiguation(), step)[0])).abs().max() > 1e-3


def test_total_is_the_weighted_sum():
    net = tiny_net(LAAR())
    step = make_step(net, 3)
    values, q = Disambiguation().loss(net, step.batch)
    L_c = values.mean()
    expected = L_c + 0.7 * mixup(q, step).mean() + 1.3 * alignment(net.gradient(L_c), step.down["g"])
    torch.testing.assert_close(LAAR(lambda_mix=0.7, lambda_ga=1.3).step_loss(Disambiguation(), step)[0], expected)


def test_the_mixed_batch_leaves_no_trace_in_the_running_statistics():
    once = replace(TOY, steps=1)
    runs = [
        engine(method, Disambiguation(), world(Candidates), once, network(nn.BatchNorm1d(8)), rounds=1).go()
        for method in (LAAR(lambda_ga=0.0), FedAvg())
    ]
    w, buffers = ([run.state.server[name] for run in runs] for name in ("w", "buffers"))
    assert torch.equal(*buffers)
    assert not torch.equal(*w)


def test_without_its_two_terms_it_is_its_objective_under_fedavg():
    step = make_step(tiny_net(LAAR()), 3)
    plain, _ = FedAvg().step_loss(Disambiguation(), step)
    assert torch.equal(LAAR(lambda_mix=0.0, lambda_ga=0.0).step_loss(Disambiguation(), step)[0], plain)
    silent_world = make_step(step.net, 3, g=torch.zeros_like(step.w))  # as in the first round
    assert torch.equal(LAAR(lambda_mix=0.0).step_loss(Disambiguation(), silent_world)[0], plain)


# -- the server --------------------------------------------------------------------------------------------------------


def hall() -> ServerContext:
    return ServerContext(tiny_net(LAAR()), torch.zeros(0, 3), 1, 0.5, torch.Generator())


def test_pseudo_gradient_is_the_last_movement():
    method = LAAR()
    server = {"w": torch.tensor([1.0, 2.0]), "buffers": torch.zeros(0)}
    server |= method.init_server(server["w"], 2)
    assert method.exchanges(0)[0].send(server, 0)["g"].tolist() == [0, 0]
    updates = Updates(
        (0, 1), torch.tensor([3.0, 1.0]), {"w": torch.tensor([[1.0, 1], [3, 0]]), "buffers": torch.zeros(2, 0)}
    )
    after = method.merge(server, updates, hall())
    assert after["w"].tolist() == [1.5, 0.75]
    assert after["g"].tolist() == [-1.0, 2.5]
    assert [e.name for e in method.exchanges(1)] == ["train"]
    kept = LAAR(global_grad="one-batch").merge(server, updates, hall())
    assert kept["g"].tolist() == [0, 0]


def test_one_batch_gradients_are_gathered_before_training_from_the_second_round_on():
    method = LAAR(global_grad="one-batch")
    assert [e.name for e in method.exchanges(0)] == ["train"]
    ask, train = method.exchanges(5)
    assert isinstance(train, Train)
    assert isinstance(ask, Query)
    net = tiny_net(method)
    b = make_step(net, 2, pad=1).batch
    rows = b.rows["q"].clone()
    answer = ask.respond(SiteContext(0, b.x, b.labels, {}, {}, net, Disambiguation(), b.rows, b, b"", 1))
    expected = torch.autograd.grad(weighted_ce(b.rows["q"], net(b.x))[:2].mean(), net.parameters)
    torch.testing.assert_close(answer["g"], torch.cat([g.reshape(-1) for g in expected]))
    assert torch.equal(b.rows["q"], rows)
    assert answer["g"].data_ptr() != net.grad.data_ptr()
    updates = Updates((0, 1), torch.tensor([3.0, 1.0]), {"g": torch.tensor([[1.0, 2], [-3, 4]])})
    assert ask.aggregate({"g": torch.zeros(2)}, updates, hall())["g"].tolist() == [0.0, 2.5]


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match="alpha"):
        LAAR(alpha=0.0)
    with pytest.raises(UsageError, match="mu"):
        Disambiguation(mu=1.01)
    with pytest.raises(UsageError, match="laar-disambiguation"):
        LAAR(objective=CC())
