import numpy as np
import pytest
import torch

from imperfed.algorithms.fedalc import FedALCFixed, fixed
from imperfed.algorithms.fedavg_fixed import FedAvgFixed
from imperfed.core.errors import UsageError
from tests.support.positive_labels import SETS, C, Hand, run, split, spread, unit
from tests.support.transcription import double, near


def eq12(d: float, u: int, v: int, alpha: float, beta: float, nu: float) -> float:
    """The terms of one ordered pair, mean over the examples."""
    total = 0.0
    for there in SETS:
        if u in there:
            total += alpha * d**2 if v in there else beta * max(0.0, nu - d) ** 2
    return total / len(SETS)


@double()
@pytest.mark.parametrize("one_pass", [False, True])
def test_the_matrix_is_learned_from_counts_and_then_stays(one_pass: bool):
    how = {"alpha": 0.7, "beta": 1.2, "nu": 1.1}
    start = split(run(FedAvgFixed()))[1]  # the same seed draws the same first W
    e = run(FedALCFixed(steps=5, lr_fixed=0.2, lr_theta=0.6, one_pass=one_pass, **how))
    W = start
    for _ in range(5):
        W = unit(W - 0.2 * spread(W, lambda d, u, v: eq12(d, u, v, **how)))
    A, learned = split(e)
    near(torch.from_numpy(learned), W, 1e-7)
    e.go()
    hand = Hand(A, learned, 0.6, 0.0)
    for report in e.reports:
        hand.round(report.who)
    near(torch.from_numpy(split(e)[0]), hand.A, 1e-12)
    near(torch.from_numpy(split(e)[1]), learned, 1e-12)


def test_labels_that_come_together_end_nearer():
    W = split(run(FedALCFixed()))[1]
    together = np.array([[sum(u in s and v in s for s in SETS) for v in range(C)] for u in range(C)])
    cosine = W @ W.T
    assert together[0, 1] > together[1, 3] == 0
    assert cosine[0, 1] > cosine[1, 3]


def test_what_a_descent_that_repeats_itself_skips_makes_no_difference(monkeypatch: pytest.MonkeyPatch):
    for steps in (1000, 1001):
        quick = split(run(FedALCFixed(steps=steps)))[1]
        with monkeypatch.context() as patch:
            patch.setattr(fixed.torch, "equal", lambda one, other: False)
            assert np.array_equal(split(run(FedALCFixed(steps=steps)))[1], quick)


def test_its_bytes_are_one_row_once():
    reports = run(FedALCFixed(one_pass=True, steps=1), rounds=3, participation=1.0).go().reports
    assert reports[1].down == reports[2].down == reports[1].up == 5 * 15 * 4
    tags = (14 * 2 + 5) * 32 + 5 * 8  # digests of 14 rows and their labels, of 5 labels, and their rows of W
    assert reports[0].up == 5 * 15 * 4 + tags


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.steps must be above 0"):
        FedALCFixed(steps=0)
    with pytest.raises(UsageError, match=r"method\.alpha must be 0 or more"):
        FedALCFixed(alpha=-1.0)
