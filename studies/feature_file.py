"""Features of a dataset's images in one file: `python -m studies.feature_file cifar10 features.npz --jobs 14`.

EfficientNet-Lite0 (extra `vision`), as float16, for studies on machines without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imperfed.data.sources import load
from imperfed.repairs.features import features
from studies.fb_nll import NETWORK

ROWS = 500
"""Images that one process takes at once."""


def part(x: Tensor) -> np.ndarray:
    """Return the features of some images, float16."""
    torch.set_num_threads(1)
    return features(NETWORK, x).numpy().astype(np.float16)


def main(words: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m studies.feature_file", description=__doc__)
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(words)
    with get_context("spawn").Pool(options.jobs) as pool:
        found = pool.imap(part, load(options.data).x.split(ROWS))
        np.savez(options.out, features=np.concatenate(list(found)))


if __name__ == "__main__":
    main()
