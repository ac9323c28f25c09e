"""A cache on disk for features that are expensive to compute, row by row, so that other splits can reuse them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imperfed.core.cache import cache_folder, keep


def remembered(name: str, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Return compute(x), reading rows that were computed before from disk; float32 [n, d]."""
    keys = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in x.contiguous().numpy()]
    wanted = set(keys)
    rows: dict[bytes, Tensor] = {}
    folder = cache_folder("features") / name
    for known, values in kept(folder):
        rows |= {key: torch.from_numpy(values[i].copy()) for i, key in enumerate(known) if key in wanted}
    new = sorted({key: i for i, key in enumerate(keys) if key not in rows}.values())
    if new:
        computed = compute(x[new]).float()
        if computed.ndim != 2 or len(computed) != len(new):
            return computed  # the caller reports what is wrong with it
        rows |= {keys[i]: row for i, row in zip(new, computed, strict=True)}
        keep_features(folder, [keys[i] for i in new], computed)
    return torch.stack([rows[key] for key in keys])


def kept(folder: Path) -> Iterator[tuple[list[bytes], np.ndarray]]:
    """Yield the digests of inputs and their features, file by file; unreadable files are skipped."""
    for path in sorted(folder.glob("*.keys.npy")):
        try:
            known = [row.tobytes() for row in np.load(path)]
            values = np.load(path.with_name(path.name.replace(".keys", "")), mmap_mode="r")
        except (OSError, ValueError):
            continue
        if values.ndim == 2 and len(values) == len(known):
            yield known, values


def keep_features(folder: Path, keys: list[bytes], values: Tensor) -> None:
    """Write two files; the keys come last, since values without keys are ignored."""
    name = hashlib.blake2b(b"".join(keys), digest_size=8).hexdigest()
    if keep(folder / f"{name}.npy", values.numpy()):
        keep(folder / f"{name}.keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16))
