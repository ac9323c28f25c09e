import pytest
import torch

from imperfed.algorithms.fedavg_fixed import FedAvgFixed
from tests.support.positive_labels import Hand, run, split
from tests.support.transcription import double, near


@double()
@pytest.mark.parametrize("one_pass", [False, True])
def test_only_theta_moves(one_pass: bool):
    e = run(FedAvgFixed(lr_theta=0.6, one_pass=one_pass))
    A, W = split(e)
    e.go()
    hand = Hand(A, W, 0.6, 0.0)
    for report in e.reports:
        hand.round(report.who)
    near(torch.from_numpy(split(e)[0]), hand.A, 1e-12)
    near(torch.from_numpy(split(e)[1]), W, 1e-12)
