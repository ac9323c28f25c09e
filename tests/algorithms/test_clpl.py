import pytest
import torch

from imperfed.algorithms.clpl import CLPL
from imperfed.core.labels import Candidates, Exact, Memberships
from tests.support.transcription import S, W, Y, Z, assert_belief, assert_stable, assert_static, gradient, losses, near


def test_softmax_scores():
    candidates, others = [0.340083, 0.510946, 0.376468], [2.352078, 1.309683, 2.480647]
    near(losses(CLPL(scores="softmax")), [a + b for a, b in zip(candidates, others, strict=True)], tolerance=2e-6)
    near(losses(CLPL(scores="softmax")).mean(), 2.456635)


def test_numbers():
    near(losses(CLPL()).mean(), 2.192315)
    near(losses(CLPL(naive=True)).mean(), 2.699444)
    near(losses(CLPL(scores="softmax", naive=True)).mean(), 2.516059)


@pytest.mark.parametrize("scores", ["logits", "softmax"])
def test_the_naive_loss_is_never_below(scores: str):
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        z = 2 * torch.randn(3, 4, generator=draw, dtype=torch.float64)
        assert (losses(CLPL(scores, naive=True), z=z) >= losses(CLPL(scores), z=z) - 1e-12).all()


def test_gradient_by_hand():
    z = Z.numpy()
    for i, (row, inside) in enumerate(zip(z, Y.numpy(), strict=True)):
        mean = row[inside].mean()
        expected = [
            -2 * max(0, 1 - mean) / inside.sum() if c else 2 * max(0, 1 + v) for v, c in zip(row, inside, strict=True)
        ]
        near(gradient(CLPL())[i], torch.tensor(expected) / 3)


@pytest.mark.parametrize("method", [CLPL(), CLPL(naive=True), CLPL("softmax"), CLPL("softmax", naive=True)])
def test_extreme_logits_stay_finite(method: CLPL):
    assert_stable(method)


def test_believes_the_model_inside_the_set():
    near(CLPL().infer_labels(Z, S, {}), W)


ALL_READINGS = [CLPL(), CLPL(naive=True), CLPL("softmax"), CLPL("softmax", naive=True)]
PARTLY = Memberships(torch.tensor([[0.5, 1.0, 0.0, 0.0], [0.0, 0.2, 0.1, 0.4], [1.0, 0.3, 0.0, 0.9]]), 4)


@pytest.mark.parametrize("method", ALL_READINGS)
def test_memberships_of_zero_and_one_are_candidate_sets(method: CLPL):
    assert torch.equal(losses(method, labels=Memberships(Y.float(), 4)), losses(method))
    assert torch.equal(gradient(method, labels=Memberships(Y.float(), 4)), gradient(method))


@pytest.mark.parametrize("naive", [False, True])
def test_memberships_weigh_both_sides(naive: bool):
    def psi(u: float) -> float:
        return max(0.0, 1 - u) ** 2

    expected = []
    for g, s in zip(Z.tolist(), PARTLY.values.double().tolist(), strict=True):
        pairs = list(zip(s, g, strict=True))
        m = sum(a * psi(b) for a, b in pairs) / sum(s) if naive else psi(sum(a * b for a, b in pairs) / sum(s))
        expected.append(m + sum((1 - a) * psi(-b) for a, b in pairs))
    near(losses(CLPL(naive=naive), labels=PARTLY), expected)
    assert sum(PARTLY.values[1]) < 1  # the weights' sum, not 1, is what the mean is divided by


def test_memberships_keep_shapes_fixed_and_beliefs_inside():
    assert_static(CLPL(), PARTLY)
    assert_belief(CLPL().infer_labels(Z, PARTLY, {}), PARTLY.values > 0)


def test_kinds_it_learns_from():
    assert [CLPL.accepts(kind) for kind in (Candidates, Memberships, Exact)] == [True, True, False]
