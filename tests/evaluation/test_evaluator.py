"""Figures: against scikit-learn, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score
from torch import Tensor, nn

from imperfed.core.network import Layout, Net, Network
from imperfed.data.oracle import Oracle
from imperfed.evaluation.evaluator import ANNOTATED, NEVER_ANNOTATED, Evaluator
from imperfed.evaluation.label_figures import FillingFigures
from imperfed.evaluation.model_figures import (
    RANKED,
    SEVERAL_CLASSES,
    accuracy,
    accuracy_of,
    auroc,
    highest,
    mean_average_precision,
    precision_at,
)


def net() -> Net:
    """A network whose logits are its inputs, so that the figures can be read off the test sets."""
    network = Network(nn.Identity(), nn.Linear(3, 3, bias=False))
    nn.init.eye_(network.head.weight)
    return Net(network, Layout.of(network, lambda name: False))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_accuracy_is_that_of_scikit_learn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    logits, y = draw.normal(size=(30, 4)), draw.integers(0, 4, 30)
    assert accuracy(torch.from_numpy(logits), torch.from_numpy(y)) == accuracy_score(y, logits.argmax(1))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_auroc_is_that_of_scikit_learn_also_with_ties(seed: int, levels: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, levels, (25, 3)).astype(np.float32)
    y = (draw.random((25, 3)) < 0.4).astype(np.int8)
    y[0], y[1] = 0, 1
    expected = roc_auc_score(y, scores, average="macro")
    assert auroc(torch.from_numpy(scores), torch.from_numpy(y)) == pytest.approx(expected, abs=1e-12)


def test_auroc_by_hand_and_where_a_class_cannot_be_judged() -> None:
    scores = torch.tensor([[0.1, 1.0, 9.0], [0.4, 2.0, 8.0], [0.4, 3.0, 7.0], [0.8, 4.0, 6.0]])
    y = torch.tensor([[0, 1, 1], [0, 1, 1], [1, 1, 0], [1, 1, 0]], dtype=torch.int8)
    first = (1 + 0.5 + 1 + 1) / 4  # pairs (present, absent): 0.4 > 0.1, 0.4 = 0.4, 0.8 > 0.1, 0.8 > 0.4
    assert auroc(scores[:, :1], y[:, :1]) == first
    assert auroc(scores, y) == (first + 1.0) / 2  # the second class has no absent example and is left out
    assert math.isnan(auroc(scores[:, 1:2], y[:, 1:2]))


def test_auroc_looks_only_where_the_truth_is_known() -> None:
    scores = torch.tensor([[0.1], [0.4], [0.3], [0.8], [0.9]])
    y = torch.tensor([[0], [1], [-1], [1], [-1]], dtype=torch.int8)
    assert auroc(scores, y) == 1.0
    y[4] = 0
    assert auroc(scores, y) == 2 / 4  # 0.4 and 0.8 beat 0.1, and neither beats 0.9


def test_classes_that_a_site_never_annotates_are_told_apart_and_those_of_nobody_left_out() -> None:
    x = torch.tensor([[1.0, 4.0, 9.0], [2.0, 3.0, 8.0], [3.0, 2.0, 7.0], [4.0, 1.0, 6.0]])
    y = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.int8)
    areas = [1.0, 1 / 4, 1.0]
    annotated = torch.tensor([[True, False, False], [True, True, False]])
    evaluator = Evaluator(Oracle(None, (x, x), (y, y), x, y), annotated)
    mean = (areas[0] + areas[1]) / 2  # nobody annotates the last class
    first, second = evaluator.site(0, net()), evaluator.site(1, net())
    assert first["auroc"] == second["auroc"] == evaluator.common(net())["auroc"] == (mean, 4)
    assert first[ANNOTATED] == (areas[0], 4)
    assert first[NEVER_ANNOTATED] == (areas[1], 4)
    assert second[ANNOTATED] == (mean, 4)
    assert math.isnan(second[NEVER_ANNOTATED][0])
    assert evaluator.by_class(0, net()).tolist() == areas
    assert Evaluator(Oracle(None, (x,), (y,))).site(0, net())["auroc"][0] == sum(areas) / 3


def test_labels_filled_in_are_judged_where_they_were_missing_and_the_truth_is_known() -> None:
    truth = torch.tensor([[1, 0], [0, 1], [0, -1], [1, 0]], dtype=torch.int8)
    missing = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
    belief = torch.tensor([[0.9, 1.0], [0.7, 0.8], [0.1, 0.3], [0.0, 0.6]])
    evaluator = Evaluator(Oracle(truth, (), ()))
    whole = FillingFigures(accuracy=3 / 5, always_absent=3 / 5, auroc=(1.0 + 1.0) / 2, n=5)
    assert evaluator.filled_in(0, 4, missing, belief) == whole
    part = FillingFigures(accuracy=1 / 2, always_absent=1.0, auroc=None, n=2)
    assert evaluator.filled_in(2, 4, missing[2:], belief[2:]) == part
    assert evaluator.filled_in(0, 1, ~missing[:1] & missing[:1], belief[:1]) is None
    assert Evaluator(Oracle(None, (), ())).filled_in(0, 4, missing, belief) is None


def test_precision_at_1_asks_whether_the_first_guess_is_present() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    y = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.int8)
    assert precision_at(1)(logits, y) == 2 / 4


def test_precision_at_k_divides_by_k_also_where_fewer_classes_are_present() -> None:
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 4.0, 3.0]])
    y = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0]], dtype=torch.int8)
    assert precision_at(3)(logits, y) == (2 / 3 + 1 / 3) / 2
    assert precision_at(5)(logits, y) == (3 / 4 + 1 / 4) / 2  # there are four classes in all


def test_of_equal_logits_the_lower_class_comes_first() -> None:
    y = torch.zeros(4, 64, dtype=torch.int8)
    y[:, :3] = 1
    for k in (1, 3):
        assert precision_at(k)(torch.zeros(4, 64), y) == 1.0
    assert precision_at(5)(torch.zeros(4, 64), y) == 3 / 5


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_average_precision_is_that_of_scikit_learn_also_with_ties(seed: int, levels: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, levels, (25, 4)).astype(np.float32)
    y = (draw.random((25, 4)) < 0.4).astype(np.int8)
    y[:, 3] = 0  # a class of no test example is left out
    y[0, :3] = 1
    expected = average_precision_score(y[:, :3], scores[:, :3], average="macro")
    assert mean_average_precision(torch.from_numpy(scores), torch.from_numpy(y)) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(mean_average_precision(torch.from_numpy(scores), torch.zeros(25, 4, dtype=torch.int8)))


def test_a_class_that_is_not_annotated_is_no_class_of_the_example() -> None:
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0]] * 4)
    y = torch.tensor([[-1, 1, 0, 1], [0, 1, -1, 1], [1, -1, -1, -1], [-1] * 4], dtype=torch.int8)
    assert precision_at(1)(logits, y) == 2 / 3  # nothing is known of the last example
    assert precision_at(3)(logits, y) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert math.isnan(precision_at(1)(logits[3:], y[3:]))


def test_average_precision_is_over_the_examples_where_a_class_is_annotated() -> None:
    logits = torch.tensor([[5.0], [4.0], [3.0], [2.0], [1.0]])
    y = torch.tensor([[-1], [1], [0], [-1], [1]], dtype=torch.int8)
    known = [1, 2, 4]
    assert mean_average_precision(logits, y) == mean_average_precision(logits[known], y[known]) == (1 + 2 / 3) / 2


def test_labels_worked_out_are_counted_against_the_truth() -> None:
    truth, suggested = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 0, 0, 2])
    evaluator = Evaluator(Oracle(truth, (), ()))
    assert accuracy_of(suggested, truth) == evaluator.labels(0, 6, suggested) == 3 / 6
    assert evaluator.labels(3, 6, suggested[3:]) == 1 / 3
    assert evaluator.mistaken(suggested, 3) == [[0, 1, 0], [0, 0, 0], [2, 0, 0]]
    unknown = Evaluator(Oracle(None, (), ()))
    assert unknown.labels(0, 6, suggested) is None
    assert unknown.mistaken(suggested, 3) is None


def test_each_site_is_measured_on_its_own_rows_and_the_global_model_on_common_ones() -> None:
    x = torch.eye(3)
    evaluator = Evaluator(
        Oracle(None, (x, x[:2]), (torch.tensor([0, 1, 1]), torch.tensor([0, 1])), x[1:], torch.tensor([0, 0]))
    )
    assert evaluator.sites == 2
    assert evaluator.metric == "accuracy"
    assert evaluator.site(0, net()) == {"accuracy": (pytest.approx(2 / 3), 3)}
    assert evaluator.site(1, net()) == {"accuracy": (1.0, 2)}
    assert evaluator.common(net()) == {"accuracy": (0.0, 2)}
    assert Evaluator(Oracle(None, (x,), (torch.tensor([0, 1, 2]),))).common(net()) == {}


def test_several_classes_an_example_have_other_figures() -> None:
    y: Tensor = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0]], dtype=torch.int8)
    evaluator = Evaluator(Oracle(None, (torch.eye(3),), (y,)))
    assert evaluator.metric == "auroc"
    # Class 2 is present where its logit is 0 and absent where it is 0 and 1: pairs 0.5 and 0.
    assert evaluator.site(0, net()) == {
        "auroc": (pytest.approx((1 + 1 + 0.25) / 3), 3),
        "p@1": (pytest.approx(2 / 3), 3),
    }


def test_a_long_test_set_is_measured_whole() -> None:
    y = torch.arange(2500) % 3
    x = torch.eye(3)[torch.where(torch.arange(2500) < 2400, y, (y + 1) % 3)]
    assert Evaluator(Oracle(None, (x,), (y,))).site(0, net()) == {"accuracy": (pytest.approx(2400 / 2500), 2500)}


def test_figures_are_what_their_names_say() -> None:
    """Of one row the classes 0, 2 and 4 are present; by logit it ranks 0, 1, 2, 3, 4."""
    logits, y = torch.tensor([[5.0, 4, 3, 2, 1]]), torch.tensor([[1, 0, 1, 0, 1]])
    assert SEVERAL_CLASSES["p@1"](logits, y) == 1
    assert {name: RANKED[name](logits, y) for name in ("p@1", "p@3", "p@5")} == {
        "p@1": 1,
        "p@3": pytest.approx(2 / 3),
        "p@5": 0.6,
    }
    swapped = torch.tensor([[4.0, 5, 3, 2, 1]])
    assert SEVERAL_CLASSES["p@1"](swapped, y) == 0
    assert highest(logits, 2).tolist() == [[0, 1]]
    assert logits.isfinite().all()  # the logits that are ranked stay as they are


def test_two_models_on_common_rows_are_compared_on_the_same_ones() -> None:
    """Without test rows of their own, sites share the common ones: these are drawn once for all sites' models."""
    y = torch.arange(40) % 2
    x = torch.nn.functional.one_hot(y, 3).float()
    evaluator = Evaluator(Oracle(None, (), (), x, y))
    right_on = [lambda x: x, lambda x: x.flip(1)]  # on all rows, and on those of class 1

    def net(number: int) -> Any:
        return lambda x: right_on[number](x)

    found = evaluator.compare([net(0), net(1)], [net(1), net(0)], seed=0)
    assert found is not None
    assert (found.low, found.high, found.n) == (0, 0, 40)  # what one gains the other loses, row by row
