import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute
from imperfed.evaluation.fairness import (
    Between,
    Fairness,
    FairnessSummary,
    count,
    course,
    eod,
    interval,
    mean_accuracy,
    measure,
    pooled,
    rates,
    spd,
)

# the ten rows of the spec: first five privileged
Y = torch.tensor([1, 1, 0, 0, 1, 1, 0, 0, 1, 0])
PREDICTED = torch.tensor([1, 0, 0, 1, 1, 1, 0, 0, 0, 0])
PRIVILEGED = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
RACE = Attribute("race", ("Asian", "Other"), 1)


def counts(predicted=PREDICTED, y=Y, group=1 - PRIVILEGED, u=1):
    return count(predicted, y, group, u)


def test_counts_are_of_group_class_and_prediction():
    #        rest: y = 0 (2 rows), y = 1 (3 rows);  target: y = 0 (3), y = 1 (2)
    assert counts().tolist() == [[[1, 1], [1, 2]], [[3, 0], [1, 1]]]
    assert int(counts().sum()) == 10


def test_the_printed_numbers():
    assert measure(eod, counts()) == pytest.approx(0.5 - 2 / 3)
    assert measure(spd, counts()) == pytest.approx(-0.4)


def test_the_sign_says_who_is_given_the_unprivileged_class():
    """All of the target group's rows of class u are given u, none of the others'."""
    y, group = torch.tensor([2, 2, 2, 0]), torch.tensor([1, 1, 0, 0])
    found = count(torch.tensor([2, 2, 1, 2]), y, group, 2)
    assert measure(eod, found) == 1.0
    assert measure(spd, found) == 0.5  # 2 of 2 against 1 of 2


@pytest.mark.parametrize(("y", "group"), [([0, 0, 1], [1, 1, 0]), ([1, 1, 1], [0, 0, 0])])
def test_an_empty_cell_is_undefined_and_never_zero(y, group):
    found = count(torch.tensor([1, 0, 1]), torch.tensor(y), torch.tensor(group), 1)
    assert measure(eod, found) is None
    assert (measure(spd, found) is None) == (sum(group) == 0)
    assert interval(eod, found) is None


def test_counts_survive_as_rates_of_sites_and_add_up():
    parts = [slice(0, 3), slice(3, 7), slice(7, 10)]
    sites = [rates("true", PREDICTED[p], Y[p], 1 - PRIVILEGED[p], 1) for p in parts]
    assert any(math.isnan(rate) for site in sites for rate, _ in site.values())  # some site lacks some cell
    assert torch.equal(pooled("true", sites), counts())
    assert pooled("candidate", sites) is None


def test_rates_of_many_rows_give_the_counts_back_exactly():
    draw = np.random.default_rng(0)
    for n in (1, 7, 99_991):
        y, predicted, inside = (torch.from_numpy(draw.integers(0, 2, n)) for _ in range(3))
        assert torch.equal(pooled("true", [rates("true", predicted, y, inside, 1)]), count(predicted, y, inside, 1))


def test_a_site_without_rows_of_a_group_does_not_count_in_its_accuracy():
    """Three sites with 2 of 4, 0 of 0 and 1 of 1 rows of the target group right."""
    inside = [torch.tensor([1, 1, 1, 1]), torch.tensor([0, 0]), torch.tensor([1, 0])]
    right = [[1, 1, 0, 0], [1, 1], [1, 0]]
    sites = [rates("true", torch.tensor(r), torch.ones(len(r)), g, 1) for r, g in zip(right, inside, strict=True)]
    assert mean_accuracy("true", "target", sites) == pytest.approx(3 / 5)
    assert mean_accuracy("true", "rest", sites) == pytest.approx(2 / 3)
    assert mean_accuracy("true", "target", sites[1:2]) is None
    assert mean_accuracy("candidate", "target", sites) is None


@pytest.mark.parametrize(("mark", "inside"), [(1.0, True), (0.51, True), (0.5, False), (0.0, False)])
def test_a_row_is_of_a_group_if_its_column_says_so(mark: float, inside: bool):
    between = Fairness("Asian", "b").between(RACE, ("a", "b"), "people")
    assert between is not None
    x = torch.tensor([[9.0, mark, 0.0]])
    found = between.scores(x, torch.tensor([1]), torch.tensor([1]), None)
    assert (mean_accuracy("candidate", "target", [found]) == 1) == inside


def test_the_interval_is_that_of_resampled_rows():
    draw = np.random.default_rng(1)
    y, group = torch.from_numpy(draw.integers(0, 2, 300)), torch.from_numpy(draw.integers(0, 2, 300))
    predicted = torch.where(torch.from_numpy(draw.random(300)) < 0.7 - 0.3 * group, y, 1 - y)
    values = []
    for _ in range(4000):
        rows = torch.from_numpy(draw.integers(0, 300, 300))
        values.append(measure(eod, count(predicted[rows], y[rows], group[rows], 1)))
    low, high = interval(eod, count(predicted, y, group, 1))
    assert low == pytest.approx(np.quantile(values, 0.025), abs=0.01)
    assert high == pytest.approx(np.quantile(values, 0.975), abs=0.01)
    assert interval(eod, count(predicted, y, group, 1)) == (low, high)
    assert interval(eod, count(predicted, y, group, 1), seed=1) != (low, high)


def test_too_few_rows_have_no_interval():
    for n, there in ((9, False), (10, True)):
        found = torch.tensor([[[50, 50], [20, 30]], [[50, 50], [n - 4, 4]]])
        assert measure(eod, found) is not None
        assert (interval(eod, found) is not None) == there
        assert interval(spd, found) is not None


def test_equal_to_fairlearn():
    metrics = pytest.importorskip("fairlearn.metrics", reason="fairlearn, or pandas, which it needs, is not installed")
    draw = np.random.default_rng(2)
    for _ in range(20):
        y, predicted, group = (draw.integers(0, high, 200) for high in (3, 3, 2))
        found = count(torch.from_numpy(predicted), torch.from_numpy(y), torch.from_numpy(group), 2)
        arguments = {"y_true": 1 * (y == 2), "y_pred": 1 * (predicted == 2), "sensitive_features": group}
        assert abs(measure(eod, found)) == pytest.approx(metrics.equal_opportunity_difference(**arguments))
        assert abs(measure(spd, found)) == pytest.approx(metrics.demographic_parity_difference(**arguments))
        frame = metrics.MetricFrame(metrics=metrics.true_positive_rate, **arguments)
        assert measure(eod, found) == pytest.approx(frame.by_group[1] - frame.by_group[0])


X = torch.tensor([[9.0, 1, 1], [9, 0, 1], [9, 1, 0], [9, 0, 1]])
ROWS = torch.tensor([1, 1, 0, 1]), torch.tensor([1, 0, 1, 1])
ASIAN = Between(Fairness("Asian", "b"), 1, 0, 1)


def test_scores_by_candidate_and_by_true_group():
    scores = ASIAN.scores(X, *ROWS, torch.tensor([1, 1, 0, 1]))
    assert scores["fair/tpr/target/candidate"] == (1.0, 1)
    assert scores["fair/tpr/rest/candidate"] == (0.5, 2)
    assert scores["fair/fpr/target/candidate"] == (1.0, 1)
    assert scores["fair/accuracy/target/candidate"] == (0.5, 2)
    assert scores["fair/tpr/rest/true"] == (2 / 3, 3)
    assert scores["fair/accuracy/target/true"] == (0.0, 1)
    assert math.isnan(scores["fair/tpr/target/true"][0])
    assert not any("true" in name for name in ASIAN.scores(X, *ROWS, None))


def test_a_rounds_figures_are_of_all_sites_together():
    site = ASIAN.scores(X, *ROWS, torch.tensor([1, 1, 0, 1]))
    found = course([site, site])
    assert found["fair/eod/candidate"] == (0.5, 2)
    assert found["fair/spd/candidate"] == (0.5, 4)
    assert found["fair/accuracy/rest/candidate"] == (0.5, 4)
    assert math.isnan(found["fair/eod/true"][0])
    assert course([{"accuracy": (0.5, 4)}]) == {}


def test_the_summary_says_undefined_as_none():
    site = ASIAN.scores(X, *ROWS, torch.tensor([1, 1, 0, 1]))
    summary = FairnessSummary.of(ASIAN, [site, site], seed=0)
    found = asdict(summary)
    assert (found["target"], found["unprivileged"]) == ("Asian", "b")
    assert found["true"]["eod"] == {"value": None, "interval": None}
    assert found["candidate"]["eod"]["value"] == 0.5
    assert found["candidate"]["target"] == {"rows": 4, "unprivileged": 2, "accuracy": 0.5}
    assert found["candidate"]["rest"] == {"rows": 4, "unprivileged": 4, "accuracy": 0.5}
    assert found["true"]["rest"]["accuracy"] == pytest.approx(2 / 3)
    assert summary.in_words()[0] == "EOD by candidate group: +0.500, n = 2 against 4"
    assert summary.in_words()[2] == "EOD by true group: undefined, n = 0 against 6"


def test_names_become_columns():
    assert Fairness("Other", "b").between(RACE, ("a", "b"), "toy") == Between(Fairness("Other", "b"), 2, 1, 1)
    assert Fairness().between(RACE, ("a",), "toy") is None
    assert Fairness().between(None, ("a",), "toy") is None


@pytest.mark.parametrize(
    ("setting", "attribute", "words"),
    [
        (Fairness("Asian", "b"), None, "and toy has none"),
        (Fairness("Asian", ""), RACE, "give both or neither"),
        (Fairness("Asain", "b"), RACE, r"fairness.target.*Did you mean 'Asian'"),
        (Fairness("Asian", "B"), RACE, r"class .fairness.unprivileged. 'B'"),
    ],
)
def test_what_cannot_be_measured_is_refused(setting, attribute, words):
    with pytest.raises(UsageError, match=words):
        setting.between(attribute, ("a", "b"), "toy")


def test_rows_that_all_sites_are_measured_on_count_once():
    site = ASIAN.scores(X.repeat(30, 1), *(t.repeat(30) for t in ROWS), None)
    one, two, twenty = (FairnessSummary.of(ASIAN, K * [site], 0, one_test=True) for K in (1, 2, 20))
    assert one == two == twenty == FairnessSummary.of(ASIAN, [site], 0)
    assert one.candidate is not None
    assert (one.candidate.target.rows, one.candidate.target.unprivileged) == (60, 30)
    assert course(20 * [site], one_test=True) == course([site])


def test_too_few_rows_stay_too_few_however_many_sites_are_measured_on_them():
    site = ASIAN.scores(X, *ROWS, None)
    figures = FairnessSummary.of(ASIAN, 20 * [site], 0, one_test=True).candidate
    assert figures is not None
    assert figures.spd.interval is None


def test_models_that_differ_on_the_same_rows_are_told_of_by_their_mean():
    y, inside = torch.ones(30, dtype=torch.int64), torch.arange(30) < 10
    sites = [rates("true", (torch.arange(30) % 10 < given).long(), y, inside, 1) for given in (3, 4, 6)]
    counts = pooled("true", sites, one_test=True)
    assert counts[1, 1].tolist() == pytest.approx([10 - 13 / 3, 13 / 3])
    assert interval(eod, counts) is not None  # ten rows of the group, though no count of them is whole
