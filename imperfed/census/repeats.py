"""Repeated inputs within a site or between sites, found by keyed digests, so that no row is revealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from imperfed.core.labels import Labels

MOST_PAIRS = 10
"""The most pairs of sites that are named."""
MOST_WORDS = 1 << 20
"""The number of words that are hashed at once."""


@dataclass(frozen=True)
class Repeats:
    """Rows that occur more than once."""

    within: tuple[int, ...]
    """Per site: the number of rows that repeat the inputs of an earlier row of the site."""
    elsewhere: tuple[int, ...]
    """Per site: the number of rows whose inputs another site holds as well."""
    shared: tuple[tuple[int, int, int], ...]
    """Two sites and the number of distinct inputs that both hold, the most first."""
    contradicted: int
    """The number of distinct inputs that occur with different exact labels."""
    tested: int
    """The number of test rows whose inputs some site trains on."""


def find_repeats(x: Sequence[Tensor], labels: Sequence[Labels], tests: Sequence[Tensor], key: bytes) -> Repeats:
    """Compare the rows of all sites, and test rows with them, by their digests under `key`."""
    K = len(x)
    every = digests_of_repeated(key, [*x, *tests])
    digest = torch.cat(every[:K])
    tag = digest.unique(return_inverse=True)[1]
    site = torch.arange(K).repeat_interleave(torch.tensor([len(part) for part in x]))
    pairs = (tag * K + site).unique()  # one per distinct input and site
    holders = (pairs // K).bincount()
    distinct = (pairs % K).bincount(minlength=K)
    rows = site.bincount(minlength=K)
    elsewhere = site[holders[tag] > 1].bincount(minlength=K)
    common = pairs[holders[pairs // K] > 1]
    return Repeats(
        tuple((rows - distinct).tolist()),
        tuple(elsewhere.tolist()),
        shared(common // K, common % K, K),
        contradicted(tag, labels, key),
        sum(int(torch.isin(part, digest).sum()) for part in every[K:]),
    )


def digests_of_repeated(key: bytes, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return a digest per row; where a hash that costs far less occurs only once, it takes the digest's place."""
    hashes = [_hash(part) for part in parts]
    _, place, rows = torch.cat(hashes).unique(return_inverse=True, return_counts=True)
    repeated = (rows[place] > 1).split([len(part) for part in parts])
    for part, digests, own in zip(parts, hashes, repeated, strict=True):
        if own.any():
            digests[own] = row_digests(key, b"row", part[own])
    return hashes


def _hash(rows: Tensor) -> Tensor:
    """Return one sum per row of its 32-bit words, each times an odd number; the same for equal rows."""
    words = rows.flatten(1).contiguous().numpy().view(np.uint32)
    factors = np.random.default_rng(0).integers(1 << 63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    sums = np.empty(len(words), np.uint64)
    step = max(1, MOST_WORDS // words.shape[1])
    for first in range(0, len(words), step):
        sums[first : first + step] = (words[first : first + step] * factors).sum(1)
    return torch.from_numpy(sums.view(np.int64))


def row_digests(key: bytes, field: bytes, values: Tensor) -> Tensor:
    """Return a keyed 64-bit digest per row: any two of a million rows collide with a probability below 1 in 10^7."""
    digests = (blake2b(row.tobytes(), key=key, digest_size=8, person=field).digest() for row in values.numpy())
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.int64)


def shared(tag: Tensor, site: Tensor, sites: int) -> tuple[tuple[int, int, int], ...]:
    """Return pairs of sites by the number of distinct inputs that both hold."""
    if not len(tag):
        return ()
    from scipy.sparse import coo_array, triu

    number = tag.unique(return_inverse=True)[1]
    holds = coo_array((torch.ones(len(tag), dtype=torch.int64), (number, site)), shape=(int(number.max()) + 1, sites))
    both = triu(holds.T @ holds, k=1).tocoo()
    pairs = sorted(zip(*map(list, (-both.data, both.row, both.col)), strict=True))
    return tuple((int(a), int(b), int(-n)) for n, a, b in pairs[:MOST_PAIRS])


def contradicted(tag: Tensor, labels: Sequence[Labels], key: bytes) -> int:
    """Count the inputs with different labels in different rows; 0 if two different labels may both be correct."""
    if not labels[0].settles:
        return 0
    several = (tag.bincount()[tag] > 1).nonzero().flatten()
    if not len(several):
        return 0
    label = torch.cat([part.values for part in labels])[several]
    kinds = torch.stack([tag[several], row_digests(key, b"label", label)], 1).unique(dim=0)
    return int((kinds[:, 0].bincount() > 1).sum())
