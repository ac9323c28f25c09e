"""The clean network behind instance-dependent candidate sets, trained on the true classes and used for nothing else."""

from __future__ import annotations

import hashlib
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from imperfed.core.cache import cache_folder, keep
from imperfed.core.threads import one_thread
from imperfed.data.corruption.candidates.base import Floats
from imperfed.nn.optimizers import Adam

HIDDEN, BATCH, RATE, EPOCHS, STEPS = 128, 256, 1e-3, 5, 500
"""Hidden units, batch size and learning rate of Adam, minimum of epochs, minimum of steps."""


def clean_logits(x: Tensor, y: Tensor, classes: int, seed: int) -> Floats:
    """Return the logits of a small network trained on the true classes of these same rows.

    They are cached in `cache_folder("clean")`.
    """
    settings = (x.shape, classes, seed, HIDDEN, BATCH, RATE, EPOCHS, STEPS)
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in (x, y):
        digest.update(tensor.contiguous().numpy().data)
    path = cache_folder("clean") / f"{digest.hexdigest()}.npy"
    logits = _recall(path, (len(x), classes))
    if logits is None:
        with one_thread():
            logits = train_clean(x.flatten(1), y, classes, seed)
        keep(path, logits)
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
    moments, steps = [Adam.of(w) for w in weights], count(1)
    batches = -(-len(x) // BATCH)
    for _ in range(max(EPOCHS, -(-STEPS // batches))):
        for rows in torch.randperm(len(x), generator=random).split(BATCH):
            loss = nn.functional.cross_entropy(net((x[rows] - mean) / spread), y[rows])
            gradients, t = torch.autograd.grad(loss, weights), next(steps)
            with torch.no_grad():
                for w, g, moment in zip(weights, gradients, moments, strict=True):
                    w.sub_(moment.move_by_rate(g, RATE, t))
    with torch.no_grad():
        return np.concatenate([net((part - mean) / spread).numpy() for part in x.split(4 * BATCH)])


def _recall(path: Path, shape: tuple[int, int]) -> Floats | None:
    """Return the cached logits, or None if there are none or they are unusable."""
    try:
        with path.open("rb") as file:
            logits: Floats = np.lib.format.read_array(file)
    except (OSError, ValueError):
        return None
    return logits if logits.shape == shape and logits.dtype == np.float32 and np.isfinite(logits).all() else None
