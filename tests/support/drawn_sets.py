"""Candidate sets that are drawn from known classes."""

from __future__ import annotations

import numpy as np

from imperfed.data.dataset import Dataset


def rng(seed=0):
    return np.random.default_rng(seed)


def truth(n, classes, seed=9):
    return rng(seed).integers(0, classes, n)


def generate(generator, x, y, classes, seed=0):
    """All that a generator makes of a dataset."""
    return generator.generate(Dataset("d", x, y, None, tuple(map(str, range(classes)))), 0, rng(seed))


def assert_holds_truth(sets, y):
    assert sets.dtype == np.bool_
    assert sets[np.arange(len(y)), y].all()
