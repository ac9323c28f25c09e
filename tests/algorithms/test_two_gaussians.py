"""The mixture of two Gaussians that tells noisy from clean."""

from __future__ import annotations

import numpy as np
import torch

from imperfed.algorithms._two_gaussians import best_split, fit, higher_of_two


def test_the_higher_component_of_eight_numbers() -> None:
    x = torch.tensor([5.1, 5.3, 4.9, 5.0, 5.2, 9.8, 10.1, 9.5])
    found = higher_of_two(x)
    assert found.tolist() == [False] * 5 + [True] * 3
    _, mean, _ = fit(x.double().unsqueeze(1), torch.stack([~found, found], 1).double())
    torch.testing.assert_close(mean.flatten(), torch.tensor([5.1, 9.8]).double(), atol=1e-6, rtol=0)


def test_the_best_split_leaves_the_least_sum_of_squares() -> None:
    assert best_split(torch.tensor([0.0, 0.9, 2.0, 9.0, 5.2])).tolist() == [False, False, False, True, True]
    rng = np.random.default_rng(0)
    for _ in range(50):
        sums = rng.normal(size=7) ** 3
        low = np.sort(sums)
        cost = [k * low[:k].var() + (7 - k) * low[k:].var() for k in range(1, 7)]
        assert best_split(torch.from_numpy(sums)).tolist() == (sums >= low[1 + int(np.argmin(cost))]).tolist()


def test_components_that_overlap_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(0, 1, (150, 2)), rng.normal(3, 1.5, (100, 2))])
    high = higher_of_two(torch.from_numpy(x)).numpy()
    assert high[:150].mean() < 0.15
    assert high[150:].mean() > 0.85


def test_one_component_has_no_higher_one() -> None:
    assert not higher_of_two(torch.ones(5)).any()
    assert not higher_of_two(torch.ones(1)).any()
    assert higher_of_two(torch.tensor([4.0, 1.0])).tolist() == [True, False]  # two points are enough
    assert best_split(torch.tensor([3.0, 0.0, 1.0])).tolist() == [True, False, False]


def test_the_split_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 3, 7, 40):
        for x in (rng.normal(size=n), rng.exponential(size=n), rng.normal(size=n) + 5.0 * (rng.random(n) < 0.2)):
            ordered = np.sort(x)
            within = [ordered[:k].var() * k + ordered[k:].var() * (n - k) for k in range(1, n)]
            cut = ordered[int(np.argmin(within)) + 1]
            assert best_split(torch.from_numpy(x)).tolist() == (x >= cut).tolist()


def test_as_many_points_as_a_large_site_has_take_no_time() -> None:
    noise = 0.01 * torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    x = torch.cat([torch.zeros(150_000), torch.ones(50_000)]) + noise
    assert int(best_split(x).sum()) == 50_000
