"""A network for tables: numbers are encoded by bins before linear layers see them."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from imperfed.core.network import Network
from imperfed.models.zoo import Rectified


class PiecewiseLinear(nn.Module):
    """The piecewise-linear encoding of Gorishniy et al. (2022): each bin of a column is one number from 0 to 1.

    It is 0 for values below the bin, 1 above it, and rises between its edges. Unlike there, the outermost bins do not
    go on beyond their edges, so that no value outweighs all others. The edges are constants, the same at every site.
    """

    column: Tensor

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        low, high = edges[:, :-1], edges[:, 1:]
        used = high > low  # a column with few values has fewer bins
        self.register_buffer("column", used.nonzero()[:, 0])
        self.low = nn.Parameter(low[used], requires_grad=False)
        self.slope = nn.Parameter(1 / (high - low)[used], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return ((x.index_select(-1, self.column) - self.low) * self.slope).clamp(0, 1)


def mlp_ple(edges: Tensor, classes: int, hidden: int, layers: int) -> Network:
    """Return linear layers with ReLU between them, on columns encoded by these bins [columns, bins + 1]."""
    encode = PiecewiseLinear(edges)
    widths = [len(encode.column)] + [hidden] * (layers - 1)
    body = Rectified(*(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)))
    return Network(nn.Sequential(encode, body), nn.Linear(widths[-1], classes))
