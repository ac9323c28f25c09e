"""FedMatch and FedMatch+: their terms in the numbers of worked examples, and whole runs against a transcription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedmatch import FedMatch, annotated_classes, disagreement, embedding, nearest, vote
from imperfed.algorithms.fedmatch_plus import FedMatchPlus
from imperfed.algorithms.fedssp import FedSSP
from imperfed.algorithms.iml import IML
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Annotated
from imperfed.core.network import Network
from imperfed.engine.local_training import Local, plan
from imperfed.engine.seeds import generator
from imperfed.nn.views import strong_view
from imperfed.testing import clauses
from imperfed.testing.cases import Case
from imperfed.testing.toy import Watched, engine, network, one_by_one, world
from tests.support.transcription import double, near

KNOWN = torch.ones(2, 2, dtype=torch.float64)


def logits(*p: float) -> Tensor:
    return torch.logit(torch.tensor([p], dtype=torch.float64))


def test_disagreement_with_helpers() -> None:
    helpers = torch.stack([logits(0.8, 0.6), logits(0.95, 0.7)])
    each = [disagreement(h.unsqueeze(0), logits(0.9, 0.4), KNOWN[:1])[0].tolist() for h in helpers]
    assert each[0] == pytest.approx([0.044403, 0.081093], abs=1e-6)
    assert each[1] == pytest.approx([0.016707, 0.183787], abs=1e-6)
    both = disagreement(helpers, logits(0.9, 0.4), KNOWN)
    assert both.mean().item() == pytest.approx(0.081497, abs=1e-6)
    partly = disagreement(helpers, logits(0.9, 0.4), torch.tensor([[1.0, 0], [0, 0]]).double())
    assert partly[0].tolist() == pytest.approx([0.044403, 0], abs=1e-6)  # of those who know the class


def test_the_majority_votes() -> None:
    own, helpers = logits(0.8, 0.2, 0.8, 0.2), torch.stack([logits(0.1, 0.9, 0.9, 0.9), logits(0.3, 0.7, 0.1, 0.1)])
    assert vote(own, helpers, torch.ones(2, 4)).tolist() == [[0, 1, 1, 0]]
    assert vote(own, helpers, torch.zeros(2, 4)).tolist() == [[1, 0, 1, 0]]
    one = torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    assert vote(own, helpers, one).tolist() == [[1, 0, 1, 0]]  # one against one: the model's own vote


def test_helpers_are_the_nearest_of_those_who_took_part() -> None:
    embedded = torch.tensor([[0.0], [1], [1.5], [1], [9]])
    seen = torch.tensor([1.0, 1, 1, 1, 0])
    assert nearest(embedded, seen, 2).tolist() == [[1, 3], [3, 2], [1, 3], [1, 2], [-1, -1]]
    assert nearest(embedded[:2], seen[:2], 3).tolist() == [[1, -1, -1], [0, -1, -1]]


def test_helpers_are_compared_by_one_input_of_the_shape_of_the_data() -> None:
    e = engine(FedMatch(), IML(), world(Annotated), rounds=1).go()
    context = ServerContext(e.server.net, torch.zeros(0, 6), 0, 0.1, torch.Generator())
    answers = [embedding(context, e.state.server["sigma"] * a, e.state.server["buffers"]) for a in (1.0, 1.0, 2.0)]
    assert answers[0].shape == (4,)
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])


def test_that_input_of_an_image_has_values_that_pixels_may_have() -> None:
    seen: list[Tensor] = []
    net = SimpleNamespace(at=lambda w, buffers, x: seen.append(x) or torch.tensor([[0.0, 1.0]]))
    for shape in ((2, 8, 8), (128,)):
        context = SimpleNamespace(net=net, public=torch.zeros(0, *shape))
        found = embedding(context, torch.zeros(1), torch.zeros(0))  # type: ignore[arg-type]
        assert found.tolist() == pytest.approx([0.5, 0.731059], abs=1e-6)
    image, numbers = seen
    assert image.shape == (1, 2, 8, 8)
    assert (float(image.min()), float(image.max())) == (0, 1)
    assert image.mean().item() == pytest.approx(0.5, abs=0.1)  # grey on average, as pixels at 125 of 255
    assert image.std().item() == pytest.approx(0.37, abs=0.05)  # normal with 0.5, cut off at one deviation
    assert numbers.min() < -1


def test_a_class_counts_as_annotated_where_it_is_known_to_be_absent() -> None:
    labels = Annotated(torch.tensor([[-1, 0, -1], [-1, -1, 1]], dtype=torch.int8), 3)
    site = SimpleNamespace(labels=labels, x=torch.zeros(2, 1))
    told = annotated_classes(site)  # type: ignore[arg-type]
    assert told["tasks"].tolist() == [0, 1, 1]
    claims = Updates((2, 0), torch.ones(2), {}, (told, {"tasks": torch.tensor([5.0, -1, 1])}))
    new = FedMatch().collect({"seen": torch.zeros(3)}, claims, None)  # type: ignore[arg-type]
    assert new["tasks"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 1]]


def test_the_server_takes_plain_means_and_asks_each_model_as_it_was_sent() -> None:
    """Two sites with batch statistics: what predicts is sigma + psi without the small entries of psi."""
    asked: list[tuple[list[float], list[float]]] = []
    net = SimpleNamespace(at=lambda w, b, x: asked.append((w.tolist(), b.tolist())) or torch.zeros(1, 1))
    context = SimpleNamespace(net=net, public=torch.zeros(0, 1), round=0)
    trees = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "psi": torch.tensor([[0.5, 0.1], [0.25, 1.0]])}
    trees["buffers"] = torch.tensor([[1.0], [5.0]])
    server = {"seen": torch.zeros(3), "embedded": torch.zeros(3, 1), "psis": torch.zeros(3, 2)}
    answers = Updates((2, 0), torch.tensor([10.0, 30.0]), trees)
    new = FedMatch(l1_thres=0.3).merge(server, answers, context)  # type: ignore[arg-type]
    # sigma: (0.5, 1.9) and (2.75, 3); psi beyond 0.3: (0.5, 0) and (0, 1), their mean (0.25, 0.5), of which 0.5 stays
    assert [w for w, _ in asked] == [pytest.approx([1, 1.9]), pytest.approx([2.75, 4])]
    assert [b for _, b in asked] == [[1], [5]]
    assert new["buffers"].tolist() == [3]
    assert new["sigma"].tolist() == pytest.approx([1.625, 2.45])
    assert new["psi"].tolist() == pytest.approx([0.25, 0.5])
    assert new["w"].tolist() == pytest.approx([1.625, 2.95])
    assert new["psis"].tolist() == [[0, 1], [0, 0], [0.5, 0]]
    assert new["seen"].tolist() == [1, 0, 1]
    assert new["embedded"].flatten().tolist() == [0.5, 0, 0.5]


def test_running_statistics_are_those_of_one_pass_over_the_rows() -> None:
    """Neither views nor helpers leave a trace in batch normalisation."""
    data, net = world(Annotated, (9,)), network(nn.BatchNorm1d(8))
    start = engine(FedMatch(), IML(), data, net=net, rounds=1)
    w = start.population.down(0, start.population.spec.algorithm.exchanges(0)[0])["w"]  # sigma + psi
    start.close()
    layout = start.population.spec.layout
    weight, bias = (layout.view(w, f"rep.0.{name}") for name in ("weight", "bias"))
    h = data[0].x @ weight.T + bias
    local = Local(steps=1, batch=16, lr=1e-3)
    e = engine(FedMatch(), IML(), data, local, network(nn.BatchNorm1d(8)), rounds=1, make_backend=one_by_one).go()
    torch.testing.assert_close(e.seen[-1]["buffers"][0, :8], 0.1 * h.mean(0))


# -- three unequal sites, two a round: a linear model ------------------------------------------------------------------

LOCAL = Local(steps=3, batch=4, lr=0.05, weight_decay=0.02)
SETTINGS: dict[str, Any] = {"tau": 0.55, "J": 2, "h_interval": 2, "lambda_s": 3.0, "lambda_i": 0.4, "lambda_a": 0.7}
SETTINGS |= {"lambda_L1": 0.03, "lambda_L2": 2.0, "l1_thres": 0.05}


THREE = world(Annotated, (5, 9, 7))


def run(method: FedMatch) -> Watched:
    federation, oracle = THREE
    values = federation.labels.values.clone()
    values[:5, 0], values[5:14, 1], values[14:, 2:] = -1, -1, -1  # classes that a site never annotates
    labels = Annotated(values, 4)
    exact = replace(federation, x=federation.x.double() / 2, public=federation.public.double(), labels=labels)
    tests = replace(oracle, test_x=tuple(x.double() for x in oracle.test_x))
    torch.manual_seed(0)
    net = Network(nn.Identity(), nn.Linear(6, 4))
    objective = IML(balance=False)
    return engine(method, objective, (exact, tests), LOCAL, net, rounds=6, participation=2 / 3)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


class Transcription:
    """The same in NumPy: theta is [W | b], theta(x) = W x + b."""

    def __init__(self, e: Watched, method: FedMatch) -> None:
        self.e, self.m, fed = e, method, e.population.federation
        self.rows = [slice(a, b) for a, b in zip(fed.starts, fed.starts[1:], strict=False)]
        self.x, self.y = fed.x.numpy(), fed.labels.values.numpy()
        self.sigma = e.state.server["w"].numpy().copy()
        self.psi = 0.2 * self.sigma
        self.psis: dict[int, np.ndarray] = {}
        self.embedded: dict[int, np.ndarray] = {}
        self.tasks = [(self.y[rows] >= 0).any(0) for rows in self.rows]
        self.helpers: dict[int, list[int]] = {}

    def logits(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return x @ theta[:24].reshape(4, 6).T + theta[24:]

    def gradient(self, dz: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.concatenate([(dz.T @ x).ravel(), dz.sum(0)])

    def site(self, t: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        m, spec, lr = self.m, self.e.population.spec, LOCAL.lr
        rows, n = self.rows[k], self.rows[k].stop - self.rows[k].start
        p = plan(spec.algorithm, spec.objective, LOCAL, n, generator(0, t, k, "batches"))
        sigma, psi, helpers = self.sigma.copy(), self.psi.copy(), self.helpers.get(k, [])
        for at, u in zip(p.rows.numpy(), p.draws["strong"], strict=True):
            B = int((at < n).sum())
            x, y = self.x[rows][at[:B]], self.y[rows][at[:B]]
            strong = strong_view(torch.from_numpy(x), u[:B]).numpy()
            known = y >= 0
            dz = m.lambda_s * known * (sigmoid(self.logits(sigma + psi, x)) - (y == 1)) / max(known.sum(), 1)
            sigma = sigma - lr * (self.gradient(dz, x) + LOCAL.weight_decay * (sigma + psi))
            q = sigmoid(self.logits(sigma + psi, x))
            sure = ~known & ((q >= m.tau) | (q <= 1 - m.tau))
            h = [sigmoid(self.logits(sigma + self.psis[j], x)) for j in helpers]
            knows = np.array([self.tasks[j] for j in helpers]).reshape(-1, 4).sum(0)
            apart = sum((self.tasks[j] * (q - hj) for j, hj in zip(helpers, h, strict=True)), 0 * q)
            votes = (q >= 0.5) + sum((self.tasks[j] * (hj >= 0.5) for j, hj in zip(helpers, h, strict=True)), 0 * q)
            target = np.where(2 * votes == 1 + knows, q >= 0.5, 2 * votes > 1 + knows)
            many = max(sure.sum(), 1)
            g = self.gradient(m.lambda_i * sure * apart / np.maximum(knows, 1) / many, x)
            far = sigmoid(self.logits(sigma + psi, strong))
            g += self.gradient(m.lambda_a * sure * (far - target) / many, strong)
            pull = 2 * lr * m.lambda_L2
            psi = (psi - lr * (g + m.lambda_L1 * np.sign(psi)) + pull * sigma) / (1 + pull)
        return sigma, psi

    def round(self, t: int, who: tuple[int, ...]) -> None:
        m, cut = self.m, lambda v: np.where(np.abs(v) > self.m.l1_thres, v, 0)
        ends = {k: self.site(t, k) for k in who}
        noise = torch.randn(1, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
        for k, (sigma, psi) in ends.items():
            self.psis[k] = cut(psi)
            self.embedded[k] = sigmoid(self.logits(sigma + self.psis[k], noise))[0]
        self.sigma = np.mean([sigma for sigma, _ in ends.values()], 0)
        self.psi = np.mean([self.psis[k] for k in ends], 0)
        if (t + 2) % m.h_interval == 0:
            for k, e in self.embedded.items():
                others = sorted(
                    (j for j in self.embedded if j != k), key=lambda j: np.linalg.norm(e - self.embedded[j])
                )
                self.helpers[k] = others[: m.J]
        elif m.helpers == "code":
            self.helpers = {}
        self.w = self.sigma + cut(self.psi)


@double()
@pytest.mark.parametrize("helpers", ["keep", "code"])
def test_six_rounds_of_unequal_sites(helpers: Any) -> None:
    method = FedMatch(**SETTINGS, helpers=helpers)
    e = run(method)
    by_hand, helped = Transcription(e, method), 0
    for t in range(6):
        report = e.round(t)
        helped += sum(len(by_hand.helpers.get(k, [])) for k in report.who)
        by_hand.round(t, tuple(sorted(report.who)))
        near(e.state.server["w"], by_hand.w, tolerance=1e-12)
        near(e.state.server["psi"], by_hand.psi, tolerance=1e-12)
    assert helped == {"keep": 14, "code": 9}[helpers]
    assert (by_hand.w == by_hand.sigma).any()  # some of psi counts as 0
    e.close()


# -- FedMatch+ ---------------------------------------------------------------------------------------------------------


def test_pre_training_is_fedssps_and_then_fedmatchs_steps_begin() -> None:
    data, local = world(Annotated), replace(LOCAL, momentum=0.0)
    plus = engine(FedMatchPlus(pretrain=1, lambda_s=1.0), IML(), data, local, rounds=2)
    ssp = engine(FedSSP(pretrain=1), IML(), data, local, rounds=2)
    w = plus.state.server["w"].clone()
    assert torch.equal(w, ssp.state.server["w"])
    ssp.state.server["w"].copy_(1.2 * w)  # sigma + psi, psi = 0.2 sigma
    for e in (plus, ssp):
        e.round(0)
    psi = plus.state.server["psi"].clone()
    torch.testing.assert_close(psi, torch.nn.functional.hardshrink(0.2 * w, 5e-6))
    n, trained = ssp.seen[-1].n, ssp.seen[-1]["w"]
    assert len(n) == 4
    torch.testing.assert_close(plus.state.server["w"], trained.mean(0), rtol=1e-4, atol=1e-5)
    assert any("pre-training ends" in note for note in plus.round(1).notes)
    assert not torch.allclose(plus.state.server["psi"], psi, atol=1e-3)
    plus.close()
    ssp.close()


HELPED = FedMatch(h_interval=1, tau=0.51, lambda_i=1.0, lambda_a=1.0)
STAGED = FedMatchPlus(pretrain=1)
CLAUSES = [
    (HELPED, clauses.one_program_for_all_makes_no_difference),
    (HELPED, clauses.resuming_makes_no_difference),
    (HELPED, clauses.padding_makes_no_difference),
    (HELPED, clauses.order_of_answers_makes_no_difference),
    (STAGED, clauses.padding_makes_no_difference),
    (STAGED, clauses.resuming_makes_no_difference),
]


@pytest.mark.parametrize(("method", "clause"), CLAUSES, ids=lambda part: getattr(part, "name", "") or part.__name__)
def test_helpers_and_stages_keep_the_contract(method: FedMatch, clause: Callable[[Case], None]) -> None:
    clause(Case(method, IML()))


@pytest.mark.parametrize("settings", [{"tau": 0.5}, {"J": 0}, {"h_interval": 0}, {"lambda_L2": -1.0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"method.{next(iter(settings))}"):
        FedMatch(**settings)


def test_other_labels_are_refused() -> None:
    with pytest.raises(UsageError, match="fedmatch is for classes that are annotated or not"):
        FedMatch(objective=CROSS_ENTROPY)
    with pytest.raises(UsageError, match="pretrain"):
        FedMatchPlus(pretrain=-1)
