"""The clean network behind instance-dependent candidate sets, trained on the true classes and used for nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from imperfed.core.threads import one_thread
from imperfed.data.corruption.candidates.base import Floats

HIDDEN, BATCH, RATE, EPOCHS, STEPS = 128, 256, 1e-3, 5, 500
"""Hidden units, batch size and learning rate of Adam, minimum of epochs, minimum of steps."""


def clean_logits(x: Tensor, y: Tensor, classes: int, seed: int) -> Floats:
    """Return the logits of a small network trained on the true classes of these same rows.

    They are cached in `cache_folder()`.
    """
    settings = (x.shape, classes, seed, HIDDEN, BATCH, RATE, EPOCHS, STEPS)
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in (x, y):
        digest.update(tensor.contiguous().numpy().data)
    path = cache_folder() / f"{digest.hexdigest()}.npy"
    logits = _recall(path, (len(x), classes))
    if logits is None:
        with one_thread():
            logits = train_clean(x.flatten(1), y, classes, seed)
        _keep(path, logits)
    return logits


def train_clean(x: Tensor, y: Tensor, classes: int, seed: int) -> Floats:
    """Train one hidden layer on standardised inputs with Adam; return its logits on the rows it was trained on."""
    random = torch.Generator().manual_seed(seed)
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread[spread == 0] = 1.0
    net = nn.Sequential(skip_init(nn.Linear, x.shape[1], HIDDEN), nn.ReLU(), skip_init(nn.Linear, HIDDEN, classes))
    weights = list(net.parameters())
    for w in weights:
        bound = w.shape[-1] ** -0.5
        nn.init.uniform_(w, -bound, bound, generator=random)
    step = adam(weights)
    batches = -(-len(x) // BATCH)
    for _ in range(max(EPOCHS, -(-STEPS // batches))):
        for rows in torch.randperm(len(x), generator=random).split(BATCH):
            loss = nn.functional.cross_entropy(net((x[rows] - mean) / spread), y[rows])
            step(torch.autograd.grad(loss, weights))
    with torch.no_grad():
        return np.concatenate([net((part - mean) / spread).numpy() for part in x.split(4 * BATCH)])


def adam(weights: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    """Return a function that takes one step of Adam; using torch.optim would cost two seconds of imports."""
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    steps = count(1)

    @torch.no_grad()
    def step(gradients: Sequence[Tensor]) -> None:
        t = next(steps)
        rate = RATE * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        for w, g, (m, s) in zip(weights, gradients, moments, strict=True):
            m.lerp_(g, 0.1)
            s.lerp_(g.square(), 0.001)
            w.sub_(rate * m / (s.sqrt() + 1e-8))

    return step


def cache_folder() -> Path:
    """Return where the logits of clean networks are cached; the folder may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "imperfed" / "clean"


def _recall(path: Path, shape: tuple[int, int]) -> Floats | None:
    """Return the cached logits, or None if there are none or they are unusable."""
    try:
        with path.open("rb") as file:
            logits: Floats = np.lib.format.read_array(file)
    except (OSError, ValueError):
        return None
    return logits if logits.shape == shape and logits.dtype == np.float32 and np.isfinite(logits).all() else None


def _keep(path: Path, logits: Floats) -> None:
    """Write the file completely or not at all; a folder that cannot be written to only costs time."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.save(file, logits)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
