from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from imperfed.algorithms.fednag import FedNAG
from imperfed.algorithms.pfedmo import PFedMo
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, ServerContext
from imperfed.core.errors import DivergedError, UsageError
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Exact
from imperfed.data.oracle import Oracle
from imperfed.defences.krum import Krum
from imperfed.engine.local_training import Local, plan
from imperfed.engine.seeds import SERVER, generator
from imperfed.testing.toy import LOCAL, Plain, Watched, engine, network, world
from tests.support.averaging import assert_buffers_are_averaged, assert_same_models, learn
from tests.support.bowls import BATCHES, FALLING, START, THREE, TWO, TWO_STEPS, Bowl, Hand, bowls, only, stretched
from tests.support.fair_federation import defended, federation
from tests.support.transcription import double, near


@dataclass(frozen=True)
class Fixed(PFedMo):
    """pFedMo with scores given beforehand, one a worker."""

    s: tuple[float, ...] = (0.0, 0.0)

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return super().init_server(w, sites) | {"u": torch.tensor(self.s)}

    def losses(self, done: LocalResult, x: Tensor, updates: Updates) -> Tensor:
        return torch.zeros(len(updates.who))

    def scores(self, losses: Tensor, u: Tensor, context: ServerContext) -> tuple[Tensor, Tensor]:
        return u, u


def trusting(rows: list[list[float]], *sites: list[list[float]]) -> tuple[Federation, Oracle]:
    """Bowls whose server holds rows of its own."""
    federation, oracle = bowls(*sites)
    labels = Exact(torch.zeros(len(rows), dtype=torch.int64), 1)
    return replace(federation, trusted=Trusted(torch.tensor(rows), labels)), oracle


# -- two workers by hand; the gradient of the representation model is 2 x + 1 ------------------------------------------


def path(algorithm: PFedMo) -> list[float]:
    """The global weight after each of three rounds."""
    e = engine(algorithm, Bowl(), trusting([[2.0, -0.5]], *TWO), TWO_STEPS, only(2.0), rounds=3)
    points: list[float] = []
    e.run(lambda report: points.append(e.state.server["w"].item()), lambda: False, None)
    return points


@pytest.mark.parametrize(
    ("reading", "s", "points"),
    [
        ("velocity", 0.0, [0.690000, -0.077875, -0.376992]),
        ("mix", 0.0, [0.690000, -0.077875, -0.376992]),
        ("printed", 0.0, [0.690000, -0.077875, -0.376992]),
        ("velocity", 1.0, [0.630000, -0.179875, -0.469724]),
        ("mix", 1.0, [0.600000, -0.196000, -0.481440]),
        ("printed", 1.0, [0.660000, -0.098500, -0.359318]),
        ("velocity", 0.5, [0.660000, -0.140500, -0.441518]),
        ("mix", 0.5, [0.645000, -0.151844, -0.448318]),
        ("printed", 0.5, [0.675000, -0.085844, -0.360425]),
    ],
)
def test_two_workers_by_hand(reading: str, s: float, points: list[float]):
    assert path(Fixed(reading=reading, s=(s, s))) == pytest.approx(points, abs=2e-6)
    assert path(Fixed(reading=reading, s=(1.0, 1.0), pi=s)) == pytest.approx(points, abs=2e-6)  # pi s is what counts


# -- three unequal workers, two a round, in NumPy ----------------------------------------------------------------------

PUBLIC = [[1.3, 0.4, -0.2], [0.7, -0.8, 0.9], [1.9, 0.1, 0.3]]
SCORES = (0.3, 0.8, 0.55)


def transcription(hand: Hand, method: Fixed) -> dict[str, np.ndarray]:
    """Algorithm 1 with both sequences written out; the fourth pair is the representation model's."""
    local, gamma, x = hand.spec.local, method.gamma, START.copy()
    hand.rows.append(np.array(PUBLIC))
    w, y = np.tile(START, (4, 1)), np.tile(START, (4, 1))

    def m(k: int) -> np.ndarray:
        return w[k] - y[k] if method.reading == "velocity" else y[k]

    for t, who in hand.rounds:
        lr = hand.lr(t)
        if method.representation == "restart":
            w[3], y[3] = x, x
        for k in (*who, 3):
            for xi in hand.batches(t, k) if k < 3 else server_batches(hand, t):
                new = w[k] - lr * (hand.g(k, w[k], xi) + local.weight_decay * w[k])
                w[k], y[k] = new + gamma * (new - y[k]), new
        p = hand.p(who) if method.aggregation == "weighted" else np.full(2, 0.5)
        wbar, mbar = (sum(p_k * of(k) for p_k, k in zip(p, who, strict=True)) for of in (lambda k: w[k], m))
        x = np.zeros_like(START)
        for p_k, k in zip(p, who, strict=True):
            share = method.pi * SCORES[k]
            m_plus = (1 - share) * mbar + share * m(3)
            w[k] = (1 - share) * wbar + share * w[3] + (0 if method.reading == "mix" else mbar - m_plus)
            y[k] = w[k] - m_plus if method.reading == "velocity" else m_plus
            x = x + p_k * w[k]
    return {"w": x, "w_k": w[:3], "m_k": np.stack([m(k) for k in range(3)]), "w_r": w[3], "m_r": m(3)}


def server_batches(hand: Hand, round: int) -> list[np.ndarray]:
    """The rows of each of the server's own steps."""
    n = len(PUBLIC)
    spec = hand.spec
    rows = plan(spec.algorithm, spec.objective, spec.local, n, generator(0, round, SERVER, "batches")).rows.numpy()
    return [at[at < n] for at in rows]


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("reading", ["velocity", "mix", "printed"])
@pytest.mark.parametrize("more", [{}, {"representation": "restart", "pi": 0.7}, {"aggregation": "uniform"}])
def test_three_rounds_of_unequal_workers_with_one_absent(reading: str, more: dict[str, object], local: Local):
    method = Fixed(reading=reading, gamma=0.6, s=SCORES, **more)
    data = trusting(PUBLIC, *THREE)
    e = engine(method, Bowl(), data, local, stretched(), rounds=3, participation=2 / 3).go()
    assert {k for report in e.reports for k in report.who} == {0, 1, 2}
    for name, expected in transcription(Hand(e), method).items():
        near(e.state.server[name], expected, tolerance=1e-12)


def test_absent_workers_keep_their_pair():
    e = engine(PFedMo(), Plain(), world(Exact), rounds=3, participation=0.75)
    for round in range(3):
        before = {name: e.state.server[name].clone() for name in ("w_k", "m_k")}
        report = e.round(round)
        for name, t in before.items():
            moved = [not torch.equal(e.state.server[name][k], t[k]) for k in range(4)]
            assert moved == [k in report.who for k in range(4)]


# -- the score ---------------------------------------------------------------------------------------------------------


def hall() -> ServerContext:
    return ServerContext(None, torch.zeros(0), 0, 0.1, torch.Generator())  # type: ignore[arg-type]


def test_the_loss_is_the_cross_entropy_of_the_representation_models_predictions_with_the_workers():
    e = engine(PFedMo(), Plain(), world(Exact), rounds=1).go()
    net, w = e.server.net, e.state.server["w"]
    x = world(Exact)[0].x[:5]
    workers = torch.stack([w * 0.5, w * -0.3])
    net.load(torch.cat([w, e.state.server["buffers"]]))
    done = LocalResult(net, {}, {}, {}, 1, 0.1)
    found = PFedMo().losses(done, x, Updates((0, 1), torch.ones(2), {"w": workers, "buffers": torch.zeros(2, 0)}))
    p = net(x).detach().double().softmax(-1)
    for loss, row in zip(found, workers, strict=True):
        q = net.at(row, torch.zeros(0), x).detach().double()
        log_q = q - q.exp().sum(1, keepdim=True).log()
        near(loss, -(p * log_q).sum(1).mean())


def test_a_score_is_the_share_by_which_the_loss_is_below_its_largest_so_far():
    told = hall()
    first, u = PFedMo().scores(torch.tensor([2.0, 0.5, 1.0]), torch.zeros(3), told)
    near(first, [0.0, 0.0, 0.0])
    second, u = PFedMo().scores(torch.tensor([0.5, 1.0, 0.75]), u, told)
    near(second, [0.75, 0.0, 0.25])
    near(u, [2.0, 1.0, 1.0])
    assert told.notes == []


def test_a_loss_that_is_zero_or_not_finite_scores_zero():
    told = hall()
    s, u = PFedMo().scores(torch.tensor([0.0, torch.inf, torch.nan, 1.0]), torch.tensor([0.0, 2.0, 0.0, 4.0]), told)
    near(s, [0.0, 0.0, 0.0, 0.75])
    near(u, [0.0, 2.0, 0.0, 4.0])
    assert told.notes == ["2 of 4 losses were not finite: their scores are 0"]


def test_scores_rise_as_the_workers_come_nearer(monkeypatch: pytest.MonkeyPatch):
    seen: list[Tensor] = []

    def watched(self: PFedMo, *told: object) -> tuple[Tensor, Tensor]:
        seen.append(scores(self, *told)[0])
        return scores(self, *told)

    scores = PFedMo.scores
    monkeypatch.setattr(PFedMo, "scores", watched)
    learn(PFedMo(), rounds=8)
    near(seen[0], [0.0, 0.0, 0.0])
    assert (seen[-1] > 0.5).all()
    assert all(((s >= 0) & (s < 1)).all() for s in seen)


def test_so_many_inputs_are_scored_drawn_anew_in_every_round(monkeypatch: pytest.MonkeyPatch):
    seen: list[Tensor] = []
    losses = PFedMo.losses

    def watched(self: PFedMo, done: LocalResult, x: Tensor, updates: Updates) -> Tensor:
        seen.append(x)
        return losses(self, done, x, updates)

    monkeypatch.setattr(PFedMo, "losses", watched)
    known = learn(PFedMo(scored=3), rounds=3).population.federation.trusted.x
    assert [len(x) for x in seen] == [3, 3, 3]
    assert all((known == row).flatten(1).all(1).any() for x in seen for row in x)
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_test_inputs_are_scored_where_asked_for():
    a, b = (learn(PFedMo(score_on=on), rounds=3) for on in ("public", "test"))
    assert not torch.equal(a.state.server["u"], b.state.server["u"])
    federation, oracle = world(Exact)
    data = replace(federation, public=federation.x[:0]), oracle
    with pytest.raises(UsageError, match=r"set split\.public"):
        engine(PFedMo(score_on="test"), Plain(), data).go()


# -- what it comes down to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", ["velocity", "mix", "printed"])
def test_the_first_round_is_fednags_and_so_are_all_without_rows_at_the_server(reading: str):
    method, nag = PFedMo(reading=reading, gamma=0.6), FedNAG(gamma=0.6)
    assert_same_models(learn(method, rounds=1), learn(nag, rounds=1), tolerance=1e-5)
    federation, oracle = world(Exact, (12, 20, 31))
    e = engine(method, Plain(), (replace(federation, trusted=None), oracle), rounds=3).go()
    assert_same_models(e, learn(nag, rounds=3), tolerance=1e-5)
    assert e.reports[2].notes == ["the server holds no labelled rows: every score is 0, and this is FedNAG"]


def test_the_representation_model_is_the_public_set_alone():
    e = learn(PFedMo(), rounds=3)
    alone = learn(FedNAG(gamma=0.5, public_weight=1.0), rounds=3)
    torch.testing.assert_close(e.state.server["w_r"], alone.state.server["w"], rtol=0, atol=1e-6)


def test_with_all_weight_on_the_representation_model_workers_start_from_it():
    method = Fixed(reading="mix", s=(1.0, 1.0, 1.0))
    server = learn(method, rounds=3).state.server
    for name in ("w", "m"):
        torch.testing.assert_close(server[f"{name}_k"], server[f"{name}_r"].expand(3, -1))
    torch.testing.assert_close(server["w"], server["w_r"])


def test_the_global_model_is_the_mean_of_the_personal_ones_and_sites_predict_with_their_own():
    e = learn(PFedMo(), rounds=4)
    server, n = e.state.server, torch.tensor([12.0, 20.0, 31.0])
    torch.testing.assert_close(server["w"], n @ server["w_k"] / n.sum())
    assert not torch.equal(server["w_k"][0], server["w"])
    for k in range(3):
        torch.testing.assert_close(e.model(k)["head.bias"], server["w_k"][k][-4:])
    torch.testing.assert_close(e.shared_model()["head.bias"], server["w"][-4:])


def test_the_printed_reading_drives_workers_and_representation_model_apart():
    def apart(reading: str) -> float:
        server = learn(Fixed(reading=reading, s=(0.9,) * 3), replace(LOCAL, lr=0.01), rounds=12).state.server
        return float((server["w"] - server["w_r"]).norm())

    assert apart("printed") > 20 * apart("velocity")


def test_the_printed_reading_ends_in_a_reported_divergence():
    """Along a direction in which the losses are nearly flat; the other readings go to the minimum."""
    flat = trusting([[0.002, -0.5]], [[0.001, 1.0]], [[0.001, -1.0]])

    def run(reading: str) -> Watched:
        method = Fixed(reading=reading, gamma=0.95, s=(1.0, 1.0))
        return engine(method, Bowl(), flat, replace(TWO_STEPS, steps=5), only(2.0), rounds=80, evaluate_every=80)

    assert abs(run("velocity").go().state.server["w"].item()) < 2
    diverging = run("printed")
    with pytest.raises(DivergedError, match="the run has diverged") as caught:
        diverging.go()
    assert caught.value.exit_code == 5
    assert len(diverging.reports) > 30


def test_two_models_go_down_and_two_come_up():
    e = learn(PFedMo(), rounds=1)
    d = len(e.state.server["w"])
    assert e.reports[0].down == e.reports[0].up == 3 * 2 * d * 4


def test_buffers_are_averaged():
    assert_buffers_are_averaged(PFedMo())


def test_the_representation_model_draws_its_dropout_from_the_seed():
    a, b, other = (learn(PFedMo(), net=network(nn.Dropout(0.5)), rounds=3, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.state.server["w_r"], b.state.server["w_r"])
    assert not torch.equal(a.state.server["w_r"], other.state.server["w_r"])


def test_the_representation_model_has_buffers_of_its_own_while_it_is_scored():
    e = learn(PFedMo(), net=network(nn.BatchNorm1d(8)), rounds=3)
    assert torch.isfinite(e.state.server["u"]).all()
    assert not torch.equal(e.server.net.layout.buffers(e.server.net.row), e.state.server["buffers"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"gamma": 1.0}, r"method\.gamma"),
        ({"pi": 1.5}, r"method\.pi"),
        ({"scored": 0}, r"method\.scored"),
    ],
)
def test_bad_settings_are_refused(setting: dict[str, object], message: str):
    with pytest.raises(UsageError, match=message):
        PFedMo(**setting)


def test_who_is_left_out_by_a_defence_goes_on_from_what_was_merged():
    server = defended(PFedMo(), Krum(), federation((1, 4, 8)), rounds=2).state.server
    assert torch.equal(server["w_k"], server["w"].expand(10, -1))
    assert torch.equal(server["m_k"], server["m_k"][:1].expand(10, -1))
