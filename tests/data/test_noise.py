"""The noise models: how many labels are wrong, whose, and what they became."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from imperfed.core.errors import UsageError
from imperfed.data.corruption.noise import noises
from imperfed.data.corruption.noise.class_dependent import ClassDependentNoise
from imperfed.data.corruption.noise.class_independent import ClassIndependentNoise
from imperfed.data.corruption.noise.instance_noise import InstanceNoise
from imperfed.data.corruption.noise.no_noise import NoNoise
from imperfed.data.corruption.noise.uniform_noise import UniformNoise
from imperfed.data.dataset import Dataset
from imperfed.data.labelling import LabelConfig, tell_exactly

OWN = np.array([True, True, True, False, False, False])
TRUTH = np.repeat([0, 1, 2], 100)


def of_class(c: int) -> np.ndarray:
    return np.equal(TRUTH, c)


def class_independent(y: np.ndarray, own: np.ndarray, rate: float, generator: np.random.Generator) -> np.ndarray:
    return ClassIndependentNoise(rate).corrupt(y, 6, own, generator)


def class_dependent(y: np.ndarray, own: np.ndarray, rate: float, generator: np.random.Generator) -> np.ndarray:
    return ClassDependentNoise(rate).corrupt(y, 6, own, generator)


def uniform(y: np.ndarray, classes: int, rho: float, tau: float, generator: np.random.Generator) -> np.ndarray:
    return UniformNoise(rho, tau).corrupt(y, classes, None, generator)


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_class_independent_takes_rows_of_every_class_to_one_foreign_label() -> None:
    given = class_independent(TRUTH, OWN, 0.4, draw())
    changed = given != TRUTH
    assert changed.sum() == 120
    assert len(set(given[changed])) == 1
    assert not OWN[given[changed][0]]
    assert all(25 <= changed[of_class(c)].sum() <= 55 for c in range(3))


def test_class_dependent_empties_one_class_and_then_the_next() -> None:
    given = class_dependent(TRUTH, OWN, 0.4, draw())
    changed = given != TRUTH
    assert sorted(changed[of_class(c)].sum() for c in range(3)) == [0, 20, 100]
    assert len(set(given[changed])) == 1
    assert not OWN[given[changed][0]]


def test_class_dependent_within_one_class() -> None:
    changed = class_dependent(TRUTH, OWN, 0.2, draw()) != TRUTH
    assert sorted(changed[of_class(c)].sum() for c in range(3)) == [0, 0, 60]


def test_the_foreign_label_and_the_first_class_are_drawn() -> None:
    targets = {class_independent(TRUTH, OWN, 0.4, draw(s)).max() for s in range(30)}
    assert targets == {3, 4, 5}
    first = {
        int(np.argmax([(class_dependent(TRUTH, OWN, 0.2, draw(s)) != TRUTH)[of_class(c)].sum() for c in range(3)]))
        for s in range(30)
    }
    assert first == {0, 1, 2}


def test_foreign_rows_are_noise_free_under_class_dependent_noise() -> None:
    y = np.concatenate([TRUTH, np.full(50, 4)])
    assert (class_dependent(y, OWN, 0.5, draw())[300:] == 4).all()


def test_uniform_leaves_some_sites_clean_and_the_rest_above_the_floor() -> None:
    y = np.zeros(2000, dtype=np.int64)
    rates = np.array([(uniform(y, 10, 0.6, 0.5, draw(s)) != y).mean() for s in range(200)])
    noisy = rates > 0
    assert 0.5 < noisy.mean() < 0.7  # rho
    assert rates[noisy].min() > 0.9 * 0.5 - 0.04  # the true label is drawn one time in ten
    assert rates[noisy].max() < 0.9 + 0.04
    assert abs(rates.mean() - 0.6 * 0.75 * 0.9) < 0.05  # rho (1 + tau) / 2 (1 - 1/C) = 0.405


def test_uniform_uses_all_classes() -> None:
    given = uniform(np.zeros(2000, dtype=np.int64), 10, 1.0, 0.9, draw())
    assert (np.bincount(given, minlength=10)[1:] > 100).all()


@pytest.mark.parametrize("name", noises())
def test_the_truth_is_not_changed(name: str) -> None:
    before = TRUTH.copy()
    noises()[name]().corrupt(TRUTH, 6, OWN, draw())
    assert np.array_equal(before, TRUTH)


def test_no_noise_leaves_all_labels() -> None:
    assert np.array_equal(NoNoise().corrupt(TRUTH, 6, None, draw()), TRUTH)


@pytest.mark.parametrize("own", [None, np.ones(6, dtype=np.bool_)])
def test_labels_of_another_task_need_another_task(own: np.ndarray | None) -> None:
    for noise in (ClassIndependentNoise(), ClassDependentNoise()):
        with pytest.raises(UsageError, match=f"noise = {noise.name} gives labels of another task.*partition = tasks"):
            noise.corrupt(TRUTH, 6, own, draw())


@pytest.mark.parametrize(
    ("noise", "key"),
    [
        (ClassIndependentNoise, "noise_rate"),
        (ClassDependentNoise, "noise_rate"),
        (UniformNoise, "noisy_sites"),
        (UniformNoise, "noise_floor"),
    ],
)
def test_rates_are_shares(noise: type, key: str) -> None:
    with pytest.raises(UsageError, match=rf"noise\.{key} must lie in 0 \.\. 1; got 1.5"):
        noise(**{key: 1.5})


def test_a_noisy_site_has_the_rate_of_its_floor_at_least() -> None:
    assert (UniformNoise().noisy_sites, UniformNoise().noise_floor) == (0.6, 0.5)
    y, changed = np.zeros(20_000, dtype=np.int64), []
    for seed in range(20):
        told = UniformNoise(noisy_sites=1, noise_floor=0.8).corrupt(y, 4, None, draw(seed))
        changed.append(float((told != 0).mean()) * 4 / 3)  # a quarter of those drawn again stays what it was
    assert 0.78 < min(changed) < 0.86
    assert max(changed) > 0.9


def instance(opinions: np.ndarray, seed: int = 0, rate: float = 0.5) -> np.ndarray:
    """The labels of 300 rows at a noisy site of a known rate."""
    noise = InstanceNoise(noisy_sites=1, lowest_rate=rate, highest_rate=rate)
    return noise.corrupt_rows(TRUTH, opinions, 6, None, draw(seed))


def test_instance_noise_reaches_its_rate_exactly_and_never_by_the_true_class() -> None:
    opinions = np.full((300, 6), 1 / 6)
    for rate, wrong in ((0.5, 150), (0.335, 100), (0.0, 0)):
        assert (instance(opinions, rate=rate) != TRUTH).sum() == wrong
    kept = InstanceNoise(noisy_sites=0).corrupt_rows(TRUTH, opinions, 6, None, draw())
    assert np.array_equal(kept, TRUTH)


def test_instance_noise_takes_hard_rows_and_the_classes_they_look_like() -> None:
    opinions = np.tile([0.0, 0.0, 0.0, 0.75, 0.25, 0.0], (300, 1))
    opinions[np.arange(300), TRUTH] = np.where(np.arange(300) % 2, 100.0, 0.01)  # even rows are hard
    opinions /= opinions.sum(1, keepdims=True)
    given = instance(opinions, rate=0.4)
    changed = given != TRUTH
    assert changed[::2].sum() > 110
    assert changed[1::2].sum() < 10
    shares = np.bincount(given[changed], minlength=6) / changed.sum()
    assert shares[[3, 4]] == pytest.approx([0.75, 0.25], abs=0.12)
    assert shares[[0, 1, 2, 5]].sum() == 0


def test_instance_noise_where_the_network_is_certain() -> None:
    certain = np.eye(6)[TRUTH]
    given = instance(certain, rate=0.5)
    assert (given != TRUTH).sum() == 150
    assert set(np.unique(given[given != TRUTH])) == set(range(6))
    with pytest.raises(UsageError, match=r"noise.lowest_rate \(0.8\) is above"):
        InstanceNoise(lowest_rate=0.8)


def test_instance_noise_of_a_dataset_asks_a_network_about_its_rows() -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 3, 240))
    x = 6 * torch.eye(3)[y] + 0.5 * torch.from_numpy(rng.normal(size=(240, 3))).float()
    x[:40] = 2.0  # rows that could be of any class
    dataset = Dataset("blobs", x, y, None, ("a", "b", "c"))
    noise = InstanceNoise(noisy_sites=1, lowest_rate=0.1, highest_rate=0.1)
    labelling = LabelConfig(kind="exact", noise=noise)
    labels, facts = tell_exactly(dataset, labelling, [torch.arange(240)], None, 0, draw())
    wrong = (labels.values != y).nonzero().flatten()
    assert len(wrong) == 24
    assert (wrong < 40).sum() >= 20
    assert facts["noise"] == "instance-dependent"
    assert facts["noise_rates"] == [0.1]
