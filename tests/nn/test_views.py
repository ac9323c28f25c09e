"""Strong views: what may happen to an image and to a row of numbers, and that no more happens to them."""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.nn.views import NUMBERS, cover, hide, relight, shake, strong_view


def uniform(n: int, numbers: int = NUMBERS) -> Tensor:
    return torch.rand(n, numbers, generator=torch.Generator().manual_seed(0))


def images(n: int) -> Tensor:
    return torch.randn(n, 2, 8, 12, generator=torch.Generator().manual_seed(1))


def test_a_window_of_an_image_is_covered_with_its_mean() -> None:
    x, u = images(50), uniform(50, 2)
    found = cover(x, u)
    for i in range(50):
        top, left = int(u[i, 0] * 7), int(u[i, 1] * 10)  # 2 of 8 rows, 3 of 12 columns
        expected = x[i].clone()
        expected[:, top : top + 2, left : left + 3] = x[i].mean()
        torch.testing.assert_close(found[i], expected)
    assert torch.isfinite(cover(x[:1], torch.ones(1, 2))).all()  # a product may be rounded up to the last place


def test_brightness_and_contrast_change() -> None:
    x = images(3)
    same = relight(x, torch.full((3, 2), 0.5))
    torch.testing.assert_close(same, x)
    more = relight(x, torch.tensor([[1.0, 0.5]] * 3))
    torch.testing.assert_close(more.std((1, 2, 3)), 1.2 * x.std((1, 2, 3)))
    torch.testing.assert_close(more.mean((1, 2, 3)), x.mean((1, 2, 3)))
    darker = relight(x, torch.tensor([[0.5, 0.0]] * 3))
    torch.testing.assert_close(darker, x - 0.2 * x.std((1, 2, 3), correction=0, keepdim=True))


def test_rows_of_numbers_are_shaken_and_partly_hidden() -> None:
    x, u = 3 + torch.rand(2000, 30), uniform(2000)
    moved = shake(x, u[:, :2], 0.1) - x
    assert 0.09 < moved.square().mean().sqrt() < 0.11
    assert moved.mean().abs() < 0.01
    hidden = hide(x, u[:, 2:4]) == 0
    assert 0.23 < hidden.float().mean() < 0.27
    assert ((hidden.float().mean(0) - 0.25).abs() < 0.05).all()  # every column alike
    kept = hide(x, u[:, 2:4])[~hidden]
    assert torch.equal(kept, x[~hidden])


def test_a_view_keeps_the_shape_and_follows_its_own_numbers() -> None:
    for x in (images(4), torch.rand(4, 9), torch.rand(4, 3, 20)):
        view = strong_view(x, uniform(4))
        assert view.shape == x.shape
        assert (view != x).flatten(1).any(1).all()
        torch.testing.assert_close(strong_view(x[2:3], uniform(4)[2:3]), view[2:3])
