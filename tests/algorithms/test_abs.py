import pytest
import torch

from imperfed.algorithms import catalogue
from imperfed.algorithms.abs import ABSGCE, ABSMAE, ABSMSE, AverageBased
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates
from tests.support.transcription import S, W, Y, Z, assert_stable, gradient, losses, near


def test_numbers():
    near(losses(ABSMAE()).mean(), 1.274360)
    near(losses(ABSMSE()).mean(), 0.723383)
    near(losses(ABSGCE()), [0.672722, 0.862298, 0.766135])
    near(losses(ABSGCE()).mean(), 0.767052)
    near(losses(ABSGCE(q=1.0)).mean(), 0.637180)


@pytest.mark.parametrize("method", [ABSMAE(), ABSMSE(), ABSGCE()], ids=lambda m: m.name)
def test_gradient_against_the_plain_formula(method: AverageBased):
    z = Z.clone().requires_grad_()
    p = torch.softmax(z, -1)
    plain = {
        "abs-mae": 2 * (1 - p),
        "abs-mse": 1 - 2 * p + (p**2).sum(1, keepdim=True),
        "abs-gce": (1 - p**0.7) / 0.7,
    }[method.name]
    (expected,) = torch.autograd.grad(((plain * Y).sum(1) / Y.sum(1)).mean(), z)
    near(gradient(method), expected, tolerance=1e-12)


@pytest.mark.parametrize(("method", "bound"), [(ABSMAE(), 2.0), (ABSMSE(), 2.0), (ABSGCE(), 1 / 0.7)])
def test_a_certain_mistake_costs_no_more_than_the_bound(method: AverageBased, bound: float):
    labels = Candidates(torch.tensor([[True, False, False, False]]), 4)
    near(losses(method, z=torch.tensor([[-1e4, 1e4, 0.0, 0.0]]), labels=labels), [bound])


@pytest.mark.parametrize("method", [ABSMAE(), ABSMSE(), ABSGCE()], ids=lambda m: m.name)
def test_extreme_logits_stay_finite_and_belief_is_the_model_inside_the_set(method: AverageBased):
    assert_stable(method)
    near(method.infer_labels(Z, S, {}), W)


def test_three_names_are_in_the_catalogue_and_their_base_is_not():
    assert {n for n in catalogue() if n.startswith("abs")} == {"abs-mae", "abs-mse", "abs-gce"}


def test_refuses_an_impossible_q():
    with pytest.raises(UsageError, match=r"objective\.q"):
        ABSGCE(q=0.0)
