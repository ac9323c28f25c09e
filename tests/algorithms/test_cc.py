import torch

from imperfed.algorithms.cc import CC
from imperfed.core.labels import Candidates
from tests.support.transcription import ALL_SETS, S, W, Z, assert_stable, gradient, losses, near


def test_numbers():
    near(losses(CC()), [0.181920, 0.155968, 0.257657])
    near(losses(CC()).mean(), 0.198515)


def test_gradient():
    near(
        gradient(CC()),
        [
            [-0.014911, -0.040533, 0.045330, 0.010114],
            [0.048138, -0.004928, -0.029814, -0.013396],
            [-0.005743, 0.032220, 0.043493, -0.069970],
        ],
    )


def test_a_model_certain_of_a_non_candidate_pays_its_lead():
    labels = Candidates(torch.tensor([[False, True, True]]), 3)
    assert losses(CC(), z=torch.tensor([[1000.0, 0.0, -1000.0]]), labels=labels).item() == 1000.0


def test_a_set_of_all_classes_teaches_exactly_nothing():
    everything = Candidates(torch.ones_like(S.values), 4)
    assert (losses(CC(), labels=everything) == 0).all()
    assert (gradient(CC(), labels=everything) == 0).all()


def test_extreme_logits_stay_finite():
    assert_stable(CC())
    assert len(ALL_SETS) == 15


def test_believes_the_model_inside_the_set():
    near(CC().infer_labels(Z, S, {}), W)
