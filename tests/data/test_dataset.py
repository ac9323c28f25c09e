"""Dataset.check: every fault of a dataset is named with its row."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.data.dataset import Dataset


def dataset(**changes: Any) -> Dataset:
    parts: dict[str, Any] = {
        "name": "toy",
        "x": torch.ones(3, 2),
        "y": torch.tensor([0, 1, 1]),
        "candidates": torch.tensor([[1, 1], [0, 1], [1, 1]]).bool(),
        "classes": ("a", "b"),
        "test_x": torch.ones(2, 2),
        "test_y": torch.tensor([1, 0]),
        "column": torch.tensor([4, 4, 9]),
    }
    return Dataset(**(parts | changes))


def test_a_sound_dataset_passes_and_numbers_its_rows() -> None:
    sound = dataset()
    assert sound.check() is sound
    assert sound.ids == ("0", "1", "2")
    assert len(sound) == 3


def test_large_finite_features_are_no_error() -> None:
    dataset(x=torch.full((3, 2), 3e38)).check()  # their sum overflows float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.ones(0, 2), "ids": ()}, r"^toy: no examples"),
        ({"x": torch.tensor([[1.0, 2], [3, 4], [5, float("nan")]])}, r"^toy, row 2, feature 1: nan"),
        ({"x": torch.tensor([[1.0, 2], [float("-inf"), 4], [5, 6]])}, r"^toy, row 1, feature 0: -inf"),
        ({"y": torch.tensor([0, 1])}, r"3 examples but 2 true classes"),
        ({"candidates": torch.ones(4, 2).bool()}, r"3 examples but 4 candidate sets"),
        ({"column": torch.tensor([1])}, r"3 examples but 1 sites"),
        ({"ids": ("a", "b")}, r"3 examples but 2 ids"),
        ({"y": torch.tensor([0, 1, 2])}, r"row 2: label 2 is outside"),
        ({"y": torch.tensor([0, -1, 1])}, r"row 1: label -1 is outside"),
        ({"candidates": torch.tensor([[1, 1], [0, 1], [0, 0]]).bool()}, r"row 2: the candidate set is empty"),
        ({"candidates": torch.tensor([[1, 1], [1, 0], [1, 1]]).bool()}, r"row 1: the true class 1 is not among"),
        ({"candidates": torch.ones(3, 3).bool()}, r"one column per class \(2\)"),
        ({"y": None, "candidates": None}, r"no true classes, candidate sets or labels"),
        ({"test_y": None}, r"needs both"),
        ({"test_x": None}, r"needs both"),
        ({"test_y": torch.tensor([0, 1, 1])}, r"test set: 2 examples but 3 true classes"),
        ({"test_y": torch.tensor([0, 7])}, r"test set, row 1: label 7 is outside"),
        ({"test_x": torch.ones(2, 5)}, r"test set: an example has shape \(5,\), in the training set \(2,\)"),
        ({"test_x": torch.full((2, 2), float("inf"))}, r"test set, row 0, feature 0: inf"),
    ],
)
def test_check_names_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset(**changes).check()


def test_a_row_of_an_image_is_named_by_its_flat_feature() -> None:
    x = torch.zeros(2, 3, 2, 2)
    x[1, 2, 0, 1] = float("nan")
    with pytest.raises(DataError, match=r"file\.npz, row 1, feature 9: nan"):
        dataset(x=x, y=torch.tensor([0, 1]), candidates=None, column=None, test_x=None, test_y=None).check("file.npz")
