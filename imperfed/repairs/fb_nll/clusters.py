"""Groups of sites from their similarity: hierarchical agglomerative clustering, cut at a number of groups."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from imperfed.core.errors import UsageError

Linkage = Literal["average", "complete", "ward"]


def cluster(R: Tensor, groups: int, linkage: Linkage) -> Tensor:
    """Return the group of each of K sites from their similarities [K, K], numbered in order of first members."""
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    if groups > len(R):
        raise UsageError(f"{groups} groups were requested, but only {len(R)} sites sent the directions to form them")
    if groups == len(R):
        return torch.arange(groups)
    D = 1 - R
    D.fill_diagonal_(0)
    tree = hierarchy.linkage(squareform(D.cpu().numpy(), checks=False), method=linkage)
    return torch.from_numpy(hierarchy.cut_tree(tree, n_clusters=[groups])[:, 0]).long().to(R.device)
