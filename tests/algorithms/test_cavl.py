import pytest
import torch

from imperfed.algorithms.cavl import CAVL
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates
from tests.support.transcription import UNIFORM, Answers, S, W, Z, assert_stable, batch, losses, near, one_step


@pytest.mark.parametrize("product", [False, True])
def test_numbers(product: bool):
    method = CAVL(product=product)
    near(losses(method, {"W": UNIFORM}).mean(), 1.361156)
    rows = method.update_rows(Answers(Z), batch(), None)
    assert rows["W"].argmax(1).tolist() == [1, 2, 3]
    near(rows["W"].sum(1), [1, 1, 1])
    near(losses(method, rows), [0.495182, 0.635073, 0.336546])
    near(losses(method, rows).mean(), 0.488934)


def pick(method: CAVL, z: list[float], candidates: list[int]) -> int:
    sets = torch.zeros(1, len(z), dtype=torch.bool)
    sets[0, candidates] = True
    rows = method.update_rows(Answers(torch.tensor([z])), batch(Candidates(sets, len(z))), None)
    return int(rows["W"].argmax())


def test_with_negative_values_only_the_authors_product_leaves_the_set():
    assert pick(CAVL(), [-1.0, -2.0, 3.0, 0.5], [0, 1]) == 0
    assert pick(CAVL(product=True), [-1.0, -2.0, 3.0, 0.5], [0, 1]) == 2


def test_the_activation_value_is_not_monotone():
    assert pick(CAVL(), [0.5, 0.9, -9.0], [0, 1]) == 0  # v = 0.25, 0.09
    assert pick(CAVL(), [1.5, 1.9, -9.0], [0, 1]) == 1  # the same logits, shifted


def test_picks_a_candidate_even_where_the_activation_value_overflows():
    assert pick(CAVL(), [0.0, 0.0, -1e20, -1e16], [2, 3]) == 3
    assert pick(CAVL(), [0.0, 0.0, -1e20, 0.0], [2]) == 2


def test_smoothing_spreads_over_all_classes():
    rows = CAVL(smoothing=0.1).update_rows(Answers(Z), batch(), None)
    near(rows["W"][0], [0.025, 0.925, 0.025, 0.025])


def test_labels_are_picked_by_the_pass_after_the_step():
    _, after, rows = one_step(CAVL())
    again = CAVL().update_rows(Answers(after), batch(), None)
    assert torch.equal(rows["W"], again["W"])
    first, second = torch.tensor([[5.0, 2, 0, 0]]), torch.tensor([[2.0, 5, 0, 0]])
    one = batch(Candidates(torch.tensor([[True, True, False, False]]), 4), {"W": torch.tensor([[0.5, 0.5, 0, 0]])})
    _, out = CAVL().loss(Answers(first), one)
    assert CAVL().update_rows(Answers(second), one, out)["W"].argmax() == 1


def test_extreme_logits_stay_finite():
    assert_stable(CAVL())
    assert_stable(CAVL(product=True))


def test_believes_the_model_inside_the_set():
    near(CAVL().infer_labels(Z, S, {"W": UNIFORM}), W)


def test_refuses_impossible_smoothing():
    with pytest.raises(UsageError, match="smoothing"):
        CAVL(smoothing=1.5)
