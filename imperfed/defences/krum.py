"""Krum and Multi-Krum (Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
NeurIPS 2017).

Source: the definitions are from memory, compared with the code of two public libraries, which differ (FedML takes
n - f - 2 neighbours, ByzFL n - f - 1).

    symbol    where it lives                        does it travel
    V_i       updates["w"] - server["w"]            up
    n         len(updates.who), sites that answered
    f         adversaries, declared
    m         m, how many answers are kept
    s(i)      computed by the server                never

All that a kept site sent is kept with it: further answers and normalisation buffers. The sizes that sites claim are not
used: where several answers are kept they count alike.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scores(V: Tensor, neighbours: int) -> Tensor:
    """s(i): the sum of the squared distances from V_i to its nearest others; [n], in double precision."""
    V = V.double()
    D = torch.stack([(V - v).square().sum(1) for v in V])
    D.fill_diagonal_(-1.0)  # sorted to the front, whatever copies of itself V_i may have, and cut off there
    return D.sort(1).values[:, 1 : 1 + neighbours].sum(1)


def lowest(scores: Tensor, m: int) -> list[int]:
    """The m lowest scores, ties to the lowest index; in order of index."""
    kept: list[int] = scores.argsort(stable=True)[:m].sort().values.tolist()
    return kept
