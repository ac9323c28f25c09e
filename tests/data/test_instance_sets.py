"""Instance-dependent candidate sets (B.4): the chances of every class, and the temperature for a wanted size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imperfed.core.errors import UsageError
from imperfed.data.corruption.candidates.clean_network import clean_logits
from imperfed.data.corruption.candidates.instance import NORMALISE, TEMPERATURES, InstanceSets
from tests.support.drawn_sets import assert_holds_truth, generate, rng, truth

LOGITS = np.array([[2.0, 1.0, 0.0, -1.0, 0.5], [0.0, 0.0, 3.0, 2.5, -2.0]])
TRUTH = np.array([0, 2])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def instance_chances(logits, y, rho, normalise, temperature):
    return InstanceSets(rho, normalise, temperature).chances(logits, y)


def expected_size(logits, y, rho, normalise, temperature):
    return InstanceSets(rho, normalise, temperature).expected_size(logits, y)


def calibrate(logits, y, rho, normalise, mean_size):
    return InstanceSets(rho, normalise, mean_size=mean_size).calibrated(logits, y).temperature


def test_instance_chances_are_the_reference_vectors():
    u = instance_chances(LOGITS, TRUTH, 0.4, "mean", 1.0)
    expected = [[0, 0.947982, 0.348743, 0.128295, 0.574980], [0.139686, 0.139686, 0, 1, 0.018904]]
    assert u == pytest.approx(np.array(expected), abs=1e-6)
    r = instance_chances(LOGITS, TRUTH, 1.0, "max", 1.0)
    assert r == pytest.approx(
        np.array([[0, 1, 0.367879, 0.135335, 0.606531], [0.082085, 0.082085, 0, 1, 0.011109]]), abs=1e-6
    )


@pytest.mark.parametrize(
    ("normalise", "rho", "sizes"),
    [
        ("mean", 0.4, (3.000000, 2.298276)),
        ("mean-wrong", 0.4, (2.6, 2.238621)),
        ("max", 1.0, (3.109745, 2.175279)),
        ("max", 0.4, (1 + 0.4 * 2.109745, 1 + 0.4 * 1.175279)),
    ],
)
def test_instance_expected_sizes(normalise, rho, sizes):
    for row, size in enumerate(sizes):
        one = slice(row, row + 1)
        assert expected_size(LOGITS[one], TRUTH[one], rho, normalise, 1.0) == pytest.approx(size, abs=1e-6)


def test_temperature_divides_the_logits():
    warm = instance_chances(LOGITS, TRUTH, 0.4, "mean", 2.5)
    assert warm == pytest.approx(instance_chances(LOGITS / 2.5, TRUTH, 0.4, "mean", 1.0))


def test_a_network_however_certain_leaves_chances():
    logits = np.array([[1e4, -1e4, -2e4], [0.0, 0.0, 0.0]], dtype=np.float32)
    u = instance_chances(logits, np.array([0, 1]), 0.2, "mean", 1.0)
    assert u == pytest.approx(np.array([[0, 0.6, 0], [0.3, 0, 0.3]]))


def test_logits_are_left_as_they_were():
    before = LOGITS.copy()
    instance_chances(LOGITS, TRUTH, 0.4, "mean", 1.0)
    assert np.array_equal(LOGITS, before)


@settings(deadline=None, max_examples=60)
@given(
    normalise=st.sampled_from(NORMALISE),
    rho=st.floats(0.05, 1),
    share=st.floats(0.05, 0.95),
    classes=st.integers(3, 8),
    seed=st.integers(0, 1000),
)
@example(normalise="mean-wrong", rho=0.3539041135950577, share=0.5, classes=3, seed=221)
def test_calibration_reaches_any_size_between_the_ends(normalise, rho, share, classes, seed):
    logits, y = rng(seed).normal(0, 4, (50, classes)), truth(50, classes, seed)
    least, most = (expected_size(logits, y, rho, normalise, t) for t in TEMPERATURES)
    wanted = least + share * (most - least)
    found = calibrate(logits, y, rho, normalise, wanted)
    assert expected_size(logits, y, rho, normalise, found) == pytest.approx(wanted, abs=1e-3)


def test_calibration_says_what_can_be_reached():
    logits, y = rng().normal(0, 4, (500, 10)), truth(500, 10)
    with pytest.raises(UsageError, match=r"mean_size = 5.2 .* rho = 0.4 .* between 2.00. and 5.000"):
        calibrate(logits, y, 0.4, "mean", 5.2)
    with pytest.raises(UsageError, match="cannot be reached"):
        calibrate(logits, y, 0.4, "mean", 1.5)


def test_instance_sets_reach_the_wanted_size_on_digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    inputs, classes = torch.from_numpy(x).float(), torch.from_numpy(y).long()
    labels, facts = generate(InstanceSets(mean_size=4.0), inputs, classes, 10)
    assert_holds_truth(labels.values.numpy(), y)
    logits = clean_logits(inputs, classes, 10, 0)
    assert (logits.argmax(1) == y).mean() > 0.97
    assert expected_size(logits, y, 0.4, "mean", facts["temperature"]) == pytest.approx(4.0, abs=0.001)
    # The realised mean has a standard error of about sqrt(9 / 4 / 1797) = 0.035 at most.
    sets = labels.values.numpy()
    assert sets.sum(1).mean() == pytest.approx(4.0, abs=0.1)
    # Instance-dependent: the wrong candidates are those the clean network finds likely.
    wrong = logits.copy()
    wrong[np.arange(len(y)), y] = np.nan
    assert np.nanmean(wrong[sets]) > np.nanmean(wrong[~sets]) + 1
