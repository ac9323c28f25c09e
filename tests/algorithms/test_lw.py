import pytest
import torch

from imperfed.algorithms.lw import LW
from imperfed.core.labels import Candidates
from imperfed.nn.losses import log1m_softmax, masked_softmax
from tests.support.transcription import (
    UNIFORM,
    Answers,
    S,
    W,
    Y,
    Z,
    assert_belief,
    assert_stable,
    batch,
    gradient,
    losses,
    near,
    one_step,
)

FIRST = {"W": torch.full((3, 4), 0.25, dtype=torch.float64)}


@pytest.mark.parametrize(("psi", "inside", "outside"), [("sigmoid", 0.184874, 0.209640), ("ce", 0.805723, 0.047868)])
def test_first_visit(psi: str, inside: float, outside: float):
    near(LW().init_rows(S)["W"], FIRST["W"])
    near(losses(LW(psi=psi, beta=0), FIRST).mean(), inside)
    near(losses(LW(psi=psi, beta=1), FIRST).mean() - inside, outside, tolerance=2e-6)


@pytest.mark.parametrize(
    ("psi", "beta", "expected"),
    [("sigmoid", 1, 0.394514), ("sigmoid", 2, 0.604153), ("ce", 1, 0.853591), ("ce", 2, 0.901460)],
)
def test_leverage_on_the_first_visit(psi: str, beta: float, expected: float):
    near(losses(LW(psi=psi, beta=beta), FIRST).mean(), expected)


@pytest.mark.parametrize(
    ("psi", "beta", "expected"),
    [("sigmoid", 1, 0.743850), ("sigmoid", 2, 1.294038), ("ce", 1, 0.912321), ("ce", 2, 1.047211)],
)
def test_second_visit(psi: str, beta: float, expected: float):
    method = LW(psi=psi, beta=beta)
    rows = method.update_rows(Answers(Z), batch(), None)
    near(
        rows["W"],
        [
            [0.268941, 0.731059, 0.817574, 0.182426],
            [1, 0.102376, 0.619338, 0.278286],
            [0.075858, 0.425557, 0.574443, 0.924142],
        ],
    )
    near(losses(method, rows).mean(), expected)


def test_weights_come_from_the_pass_after_the_step():
    _, after, rows = one_step(LW())
    torch.testing.assert_close(rows["W"], masked_softmax(after, Y) + masked_softmax(after, ~Y))


@pytest.mark.parametrize("psi", ["sigmoid", "ce"])
def test_a_set_of_all_classes_has_no_other_side(psi: str):
    everything = Candidates(torch.ones_like(Y), 4)
    rows = LW().update_rows(Answers(Z), batch(everything), None)
    near(rows["W"], torch.softmax(Z, -1))
    near(losses(LW(psi=psi, beta=7), rows, labels=everything), losses(LW(psi=psi, beta=0), rows, labels=everything))


def test_a_certain_mistake_still_has_a_gradient():
    """In float32 the probability of the first class is exactly 1 here."""
    labels = Candidates(torch.tensor([[False, True, True, False]]), 4)
    z, rows = torch.tensor([[60.0, 0.0, 0.0, 0.0]]), {"W": torch.tensor([[1.0, 0.5, 0.5, 0.0]])}
    near(losses(LW(psi="ce"), rows, z, labels), [60 + 60 - torch.tensor(3.0).log()], tolerance=1e-4)
    near(gradient(LW(psi="ce"), rows, z, labels), [[2, -0.5 - 1 / 3, -0.5 - 1 / 3, -1 / 3]], tolerance=1e-5)


def test_log_of_the_complement_agrees_with_the_plain_formula():
    z = Z.clone().requires_grad_()
    stable, plain = log1m_softmax(z), torch.log(1 - torch.softmax(z, -1))
    near(stable, plain.detach(), tolerance=1e-12)
    weights = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    (a,) = torch.autograd.grad((weights * stable).sum(), z)
    (b,) = torch.autograd.grad((weights * plain).sum(), z)
    near(a, b, tolerance=1e-12)


@pytest.mark.parametrize("psi", ["sigmoid", "ce"])
def test_extreme_logits_stay_finite(psi: str):
    assert_stable(LW(psi=psi, beta=2))


def test_believes_its_weights_inside_the_set():
    near(LW().infer_labels(Z, S, FIRST), UNIFORM)
    rows = LW().update_rows(Answers(Z), batch(), None)
    near(LW().infer_labels(-Z, S, rows), W)
    assert_belief(LW().infer_labels(-Z, S, rows), Y)
