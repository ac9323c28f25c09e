import torch

from imperfed.algorithms.proden import PRODEN
from imperfed.nn.losses import masked_softmax
from tests.support.transcription import UNIFORM, Answers, S, W, Y, Z, assert_stable, batch, near, one_step, silent


def test_two_visits_with_unchanged_logits():
    near(PRODEN().init_rows(S)["W"], UNIFORM)
    first, out = PRODEN().loss(Answers(Z), batch(rows={"W": UNIFORM}))
    near(first.mean(), 1.361156)
    rows = PRODEN().update_rows(silent, batch(), out)
    near(rows["W"], W)
    second, _ = PRODEN().loss(Answers(Z), batch(rows=rows))
    near(second.mean(), 0.777431)


def test_confidences_come_from_the_pass_of_the_step_itself():
    before, after, rows = one_step(PRODEN())
    torch.testing.assert_close(rows["W"], masked_softmax(before, Y))
    assert not torch.allclose(rows["W"], masked_softmax(after, Y), atol=1e-3)


def test_what_it_remembers_carries_no_gradient():
    _, out = PRODEN().loss(Answers(Z.clone().requires_grad_()), batch(rows={"W": UNIFORM}))
    assert not out.requires_grad


def test_extreme_logits_stay_finite():
    assert_stable(PRODEN())


def test_believes_its_confidences():
    near(PRODEN().infer_labels(-Z, S, {"W": W}), W)
