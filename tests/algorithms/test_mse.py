import torch

from imperfed.algorithms.mse import MSE
from imperfed.core.labels import Exact
from tests.support.transcription import Z, assert_static, gradient, losses, near

LABELS = Exact(torch.tensor([1, 2, 3]), 4)
ONE_HOT = torch.eye(4, dtype=torch.float64)[[1, 2, 3]]


def test_is_the_mean_over_classes_of_the_squared_distance_to_the_one_hot_label():
    first = (1.0**2 + (2.0 - 1) ** 2 + 0.5**2 + 1.0**2) / 4
    second = (0.2**2 + 0.3**2 + (1.5 - 1) ** 2 + 0.7**2) / 4
    third = (0.5**2 + 0.0 + 0.3**2 + (2.0 - 1) ** 2) / 4
    near(losses(MSE(), labels=LABELS), [first, second, third])


def test_the_gradient_points_from_the_label_to_the_output():
    near(gradient(MSE(), labels=LABELS), (2 / 4 / 3) * (Z - ONE_HOT))


def test_the_least_squares_solution_is_where_it_does_not_move():
    near(losses(MSE(), z=ONE_HOT, labels=LABELS), [0.0, 0.0, 0.0])
    near(gradient(MSE(), z=ONE_HOT, labels=LABELS), torch.zeros(3, 4))


def test_works_out_no_labels_and_needs_no_number_on_the_host():
    assert_static(MSE(), LABELS)
    assert MSE().init_rows(LABELS) == {}
    assert MSE().infer_labels(Z, LABELS, {}) is None
