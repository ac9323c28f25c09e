"""Krum, Multi-Krum, Bulyan, RFA, the median and the trimmed mean as functions of a matrix."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from imperfed.core.exchange import Updates
from imperfed.defences.bulyan import Bulyan, mean_near_median, select
from imperfed.defences.krum import Krum, MultiKrum, lowest, scores
from imperfed.defences.median import Median, median
from imperfed.defences.rfa import RFA, weiszfeld
from imperfed.defences.robust import Robust
from imperfed.defences.trimmed_mean import TrimmedMean, trimmed_mean

SEVEN = torch.tensor([[1.00, 2.00], [1.25, 1.82], [0.93, 2.11], [1.12, 2.27], [0.78, 1.91], [1.03, 1.66], [10.0, -10]])
SCORES = [0.2557, 0.5748, 0.3277, 0.6136, 0.4730, 0.5280, 884.5479]


@pytest.mark.parametrize(
    ("rule", "fewest"),
    [
        (Krum(adversaries=2), 7),  # 2f + 3
        (MultiKrum(adversaries=2), 7),
        (MultiKrum(adversaries=2, m=6), 8),  # m <= n - f
        (Bulyan(adversaries=2), 11),  # 4f + 3
        (Median(adversaries=2), 5),  # 2f + 1
        (TrimmedMean(adversaries=2), 5),
        (RFA(adversaries=2), 5),
    ],
)
def test_how_many_answers_a_rule_needs(rule: Robust, fewest: int):
    assert rule.needs() == fewest
    notes: list[str] = []
    context = SimpleNamespace(notes=notes)
    V = torch.randn(fewest, 2)
    answers = Updates(tuple(range(fewest)), torch.ones(fewest), {"w": V})
    assert rule.inspect({}, {}, answers, context)[0] is not None  # type: ignore[arg-type]
    assert not notes
    few = answers.only(torch.arange(fewest - 1))
    assert rule.inspect({}, {}, few, context)[0] is None  # type: ignore[arg-type]
    assert f"it needs {fewest}" in notes[0]


def test_krum_scores_of_seven_answers():
    assert scores(SEVEN, neighbours=7 - 1 - 2).tolist() == pytest.approx(SCORES, abs=1e-4)
    assert lowest(scores(SEVEN, 4), 1).tolist() == [0]


def test_multi_krum_keeps_the_lowest_scores():
    s = scores(SEVEN, 4)
    assert lowest(s, 4).tolist() == [0, 2, 4, 5]
    assert SEVEN[lowest(s, 4)].mean(0).tolist() == pytest.approx([0.935, 1.92], abs=1e-6)
    assert SEVEN[lowest(s, 6)].mean(0).tolist() == pytest.approx([1.018333, 1.961667], abs=1e-6)


def kept(rule: Krum, V: torch.Tensor) -> list[int]:
    return list(rule.rule(Updates(tuple(range(len(V))), torch.ones(len(V)), {"w": V})).who)


def test_how_many_neighbours_count():
    # Against two adversaries three nearest others count or, with the option, four: who is kept depends on it.
    assert kept(Krum(adversaries=1), SEVEN) == [0]
    assert kept(Krum(adversaries=2), SEVEN) == [2]
    assert kept(Krum(adversaries=2, neighbours="n-f-1"), SEVEN) == [0]


def test_multi_krum_keeps_n_f_2_unless_told_otherwise():
    assert kept(MultiKrum(adversaries=1), SEVEN) == [0, 2, 4, 5]
    assert kept(MultiKrum(adversaries=2), SEVEN) == [0, 2, 4]
    assert kept(MultiKrum(adversaries=1, m=6), SEVEN) == [0, 1, 2, 3, 4, 5]


def test_the_sizes_that_kept_sites_claim_are_not_used():
    answers = Updates(tuple(range(7)), torch.arange(1.0, 8), {"w": SEVEN})
    assert MultiKrum(adversaries=1).rule(answers).n.tolist() == [1, 1, 1, 1]


def test_ties_go_to_the_lowest_index():
    line = torch.arange(5.0).unsqueeze(1)
    assert scores(line, 5 - 1 - 2).tolist() == [5, 2, 2, 2, 5]
    assert lowest(scores(line, 2), 1).tolist() == [1]
    assert lowest(scores(line, 2), 4).tolist() == [0, 1, 2, 3]


def test_a_copy_of_an_answer_is_a_neighbour_at_no_distance():
    assert scores(torch.tensor([[1.0], [1.0], [4.0]]), 1).tolist() == [0, 0, 9]


def krum_in_numpy(V: np.ndarray, neighbours: int) -> np.ndarray:
    n = len(V)
    D = [[float(((V[i] - V[j]) ** 2).sum()) for j in range(n) if j != i] for i in range(n)]
    return np.array([sum(sorted(d)[:neighbours]) for d in D])


@given(st.integers(0, 10**6), st.integers(0, 3), st.integers(0, 4))
def test_the_rules_are_their_transcriptions(seed: int, f: int, more: int):
    rng, n = np.random.default_rng(seed), 2 * f + 3 + more
    V = rng.normal(size=(n, 5)) * rng.uniform(0.1, 30, size=(n, 1))
    there = torch.from_numpy(V)
    np.testing.assert_allclose(scores(there, n - f - 2), krum_in_numpy(V, n - f - 2), rtol=1e-12)
    np.testing.assert_allclose(median(there), np.median(V, 0), rtol=1e-12)
    by_hand = [np.mean(sorted(column)[f : n - f]) for column in V.T]
    np.testing.assert_allclose(trimmed_mean(there, f), by_hand, rtol=1e-12)


@given(st.permutations(range(7)))
def test_the_order_of_the_sites_does_not_matter(order: list[int]):
    kept = lowest(scores(SEVEN[order], 4), 4)
    assert sorted(order[i] for i in kept.tolist()) == [0, 2, 4, 5]
    assert torch.equal(median(SEVEN[order]), median(SEVEN))
    assert torch.equal(trimmed_mean(SEVEN[order], 2), trimmed_mean(SEVEN, 2))


def test_the_rules_move_with_the_answers():
    moved = SEVEN + torch.tensor([3.0, -4.0])
    assert lowest(scores(moved, 4), 4).tolist() == [0, 2, 4, 5]
    torch.testing.assert_close(median(moved), median(SEVEN) + torch.tensor([3.0, -4.0]))
    torch.testing.assert_close(trimmed_mean(moved, 1), trimmed_mean(SEVEN, 1) + torch.tensor([3.0, -4.0]))


def test_median_of_seven_and_of_an_even_number():
    assert median(SEVEN).tolist() == pytest.approx([1.03, 1.91], abs=1e-6)
    assert median(torch.tensor([[1.0], [2.0], [10.0], [3.0]])).tolist() == [2.5]


@pytest.mark.parametrize(
    ("b", "expected"), [(0, [2.301429, 0.252857]), (1, [1.066, 1.90]), (2, [1.05, 1.91]), (3, [1.03, 1.91])]
)
def test_trimmed_mean_of_seven(b: int, expected: list[float]):
    assert trimmed_mean(SEVEN, b).tolist() == pytest.approx(expected, abs=1e-6)


def test_answers_of_any_shape_keep_it():
    V = torch.randn(5, 2, 3)
    assert median(V).shape == trimmed_mean(V, 1).shape == (2, 3)
    assert median(V[:, :0]).shape == (0, 3)


def test_bulyan_of_seven():
    assert select(SEVEN, 1) == [0, 2, 5, 1, 3]
    chosen = SEVEN[select(SEVEN, 1)]
    assert median(chosen).tolist() == pytest.approx([1.03, 2.00], abs=1e-6)
    assert mean_near_median(chosen, 3).tolist() == pytest.approx([1.05, 1.976667], abs=1e-6)


def test_bulyan_replaces_the_selected_answers_by_the_mixture():
    answers = Updates(tuple(range(7)), torch.arange(1.0, 8), {"w": SEVEN, "buffers": 2 * SEVEN[:, :1]})
    done = Bulyan(adversaries=1).rule(answers)
    assert done.who == (0, 1, 2, 3, 5)
    assert done["w"].tolist() == [pytest.approx([1.05, 1.976667], abs=1e-6)] * 5
    assert done["buffers"].tolist() == [pytest.approx([2.10], abs=1e-6)] * 5  # the selection is by weights alone


def test_of_two_values_as_near_to_the_median_the_smaller_one_counts():
    assert mean_near_median(torch.tensor([[0.0], [1.0], [3.0], [5.0], [9.0]]), 2).tolist() == [2.0]  # 3, and 1, not 5
    assert mean_near_median(torch.tensor([[5.0], [9.0], [3.0], [0.0], [1.0]]), 2).tolist() == [2.0]  # whoever sent them


def test_bulyan_selects_from_those_left_and_ties_go_to_the_lowest_index():
    # Scores 5, 2, 2, 2, 5 with two neighbours; then 4, 1, 1, 1 of those left with one; then 9, 1, 1 with at least one.
    assert select(torch.arange(5.0).unsqueeze(1), 1) == [1, 2, 3]


STEPS = [[2.301429, 0.252857], [1.266743, 1.624971], [1.102643, 1.834575], [1.072202, 1.877597], [1.051831, 1.904996]]
ALIKE = torch.full((7,), 1 / 7, dtype=torch.float64)


def objective(v: torch.Tensor) -> float:
    return float((v - SEVEN.double()).norm(dim=1).mean())


@pytest.mark.parametrize(("steps", "expected"), list(enumerate(STEPS)))
def test_rfa_of_seven(steps: int, expected: list[float]):
    v = weiszfeld(SEVEN, ALIKE, steps, 1e-5, 1e-6) @ SEVEN.double()
    assert v.tolist() == pytest.approx(expected, abs=1e-6)


def test_rfa_converges_to_the_geometric_median():
    assert objective(weiszfeld(SEVEN, ALIKE, 4, 1e-5, 1e-6) @ SEVEN.double()) == pytest.approx(2.334913, abs=1e-6)
    v = weiszfeld(SEVEN, ALIKE, 10_000, 1e-5, 0.0) @ SEVEN.double()
    assert v.tolist() == pytest.approx([1.005286, 1.988107], abs=1e-5)
    assert objective(v) == pytest.approx(2.330330, abs=1e-6)


def test_rfa_stops_once_the_objective_hardly_changes():
    lazy = weiszfeld(SEVEN, ALIKE, 4, 1e-5, 0.2) @ SEVEN.double()  # 3.67, 2.46 and then 2.35: that is enough
    assert lazy.tolist() == pytest.approx(STEPS[2], abs=1e-6)


def test_rfa_does_not_depend_on_the_unit_of_the_answers():
    """That it stops is decided by the relative change of the objective."""
    lazy = weiszfeld(SEVEN, ALIKE, 4, 1e-5, 0.2)
    for unit in (1e-3, 1e3):
        torch.testing.assert_close(weiszfeld(unit * SEVEN, ALIKE, 4, 1e-5 * unit, 0.2), lazy, rtol=1e-5, atol=0)


def test_an_answer_at_the_median_itself_has_a_bounded_weight():
    line = torch.tensor([[-2.0], [0.0], [2.0]])
    w = weiszfeld(line, torch.full((3,), 1 / 3), 1, 0.5, 0.0)  # distances 2, nu = 1/2 and 2
    assert w.tolist() == pytest.approx([1 / 6, 2 / 3, 1 / 6])


def test_rfa_weighs_by_size_only_if_asked():
    answers = Updates(tuple(range(7)), torch.tensor([1.0, 1, 1, 1, 1, 1, 94]), {"w": SEVEN, "buffers": SEVEN[:, :1]})
    assert RFA().rule(answers)["w"][3].tolist() == pytest.approx(STEPS[4], abs=1e-5)
    assert RFA(weights="sizes").rule(answers)["w"][3].tolist() == pytest.approx([10, -10], abs=0.1)
    done = RFA().rule(answers)
    torch.testing.assert_close(done["buffers"][0, 0], done["w"][0, 0])  # the same weights for every answer


@given(st.permutations(range(7)))
def test_the_order_of_the_sites_does_not_matter_to_rfa(order: list[int]):
    torch.testing.assert_close(
        weiszfeld(SEVEN[order], ALIKE, 4, 1e-5, 1e-6), weiszfeld(SEVEN, ALIKE, 4, 1e-5, 1e-6)[order]
    )
