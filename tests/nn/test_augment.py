"""Augmentation: what may happen to an image, how often, and that numbers drawn beforehand decide it."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from imperfed.nn.augment import augment, crop, draw_augmentations, flip, separate


def images(n: int, side: int = 16) -> torch.Tensor:
    return torch.randn(n, 3, side, side + 8, generator=torch.Generator().manual_seed(0))


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    x, u = images(40), torch.rand(40, 2, generator=torch.Generator().manual_seed(1))
    padded = pad(x, (3, 3, 2, 2))  # 24 // 8 columns and 16 // 8 rows
    for i, found in enumerate(crop(x, u)):
        top, left = int(u[i, 0] * 5), int(u[i, 1] * 7)
        assert torch.equal(found, padded[i, :, top : top + 16, left : left + 24])


def test_every_offset_is_as_likely_as_any_other() -> None:
    one = torch.arange(1.0, 1 + 32 * 32).view(1, 1, 32, 32)  # padded by 4: 9 x 9 windows
    u = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(2))
    centre = crop(one.expand(20_000, -1, -1, -1), u)[:, 0, 16, 16]
    seen, counts = centre.unique(return_counts=True)
    shifts = torch.arange(-4, 5)
    assert torch.equal(seen, (one[0, 0, 16, 16] + 32 * shifts.unsqueeze(1) + shifts).flatten())
    assert counts.min() > 150  # 247 expected, 16 the standard deviation
    assert counts.max() < 350


def test_the_largest_and_smallest_numbers_stay_inside() -> None:
    x, ends = images(2, 64), torch.tensor([[0.0, 0.0], [1 - 2**-24, 1 - 2**-24]])
    padded = pad(x, (9, 9, 8, 8))
    assert torch.equal(crop(x, ends)[0], padded[0, :, :64, :72])
    assert torch.equal(crop(x, ends)[1], padded[1, :, 16:, 18:])


def test_small_images_are_padded_by_one_pixel() -> None:
    x = torch.arange(1.0, 7).view(1, 1, 2, 3)
    assert crop(x, torch.zeros(1, 2)).tolist() == [[[[0, 0, 0], [0, 1, 2]]]]


def test_every_second_image_is_mirrored() -> None:
    x, u = images(4000), torch.rand(4000, generator=torch.Generator().manual_seed(3))
    found = flip(x, u)
    mirrored = (found == x.flip(3)).flatten(1).all(1)
    assert torch.equal(mirrored, u < 0.5)
    assert torch.equal(found[~mirrored], x[~mirrored])
    assert 0.47 < mirrored.float().mean() < 0.53


def test_several_are_applied_in_order_and_an_algorithms_numbers_are_left_to_it() -> None:
    x, draw = images(6), torch.Generator().manual_seed(4)
    draws = draw_augmentations(("flip", "crop"), 1, 6, draw)
    own, augmenting = separate({"gamma": torch.ones(1)} | draws)
    assert own.keys() == {"gamma"}
    u = {name: t[0] for name, t in augmenting.items()}
    expected = crop(flip(x, draws["augment/flip"][0]), draws["augment/crop"][0])
    assert torch.equal(augment(x, u), expected)
