"""Label correlations: how often classes occur together, and the weights and forces between classes based on that.

n_u        examples that carry class u
co_uu'     examples that carry both; co_uu = n_u
n s_uu'    n_u - co_uu': examples that carry u and not u'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from imperfed.nn.embeddings import without_self


@dataclass(frozen=True)
class Pairs:
    """How often classes occur, alone and together; sparse: row u of co is other[first[u] : first[u + 1]]."""

    total: Tensor
    """The number of examples, a scalar."""
    n: Tensor
    first: Tensor
    other: Tensor
    together: Tensor

    @classmethod
    def of(cls, example: Tensor, label: Tensor, classes: int) -> Pairs:
        """Count (example, class) pairs; any number can identify an example, and a repeated pair counts once."""
        from scipy.sparse import csr_matrix

        names, at = example.cpu().unique(return_inverse=True)
        cells = torch.unique(at * classes + label.cpu())
        where = ((cells // classes).numpy(), (cells % classes).numpy())
        carries = csr_matrix((torch.ones(len(cells)).numpy(), where), (len(names), classes))
        co = (carries.T @ carries).tocsr()
        co.sort_indices()
        first, other = (torch.from_numpy(part.astype("int64")) for part in (co.indptr, co.indices))
        n, together = torch.from_numpy(co.diagonal()), torch.from_numpy(co.data)
        parts = (torch.tensor(float(len(names))), n, first, other, together)
        return cls(*(part.to(label.device) for part in parts))

    def tree(self, prefix: str) -> dict[str, Tensor]:
        """Return the counts as named tensors."""
        return {f"{prefix}{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_tree(cls, tree: dict[str, Tensor], prefix: str) -> Pairs:
        """Return the counts held by named tensors."""
        return cls(*(tree[f"{prefix}{f.name}"] for f in fields(cls)))

    def among(self, classes: Tensor) -> Pairs:
        """Return the counts of some classes, in ascending order, and of pairs of them."""
        place = self.other.new_full((len(self.n),), -1).index_copy(0, classes, torch.arange(len(classes)).to(classes))
        lengths = self.first.diff()[classes]
        start = torch.repeat_interleave(self.first[classes] - (lengths.cumsum(0) - lengths), lengths)
        stored = start + torch.arange(len(start), device=start.device)  # where the rows of these classes are
        other = place[self.other[stored]]
        row = torch.repeat_interleave(torch.arange(len(classes), device=other.device), lengths)[other >= 0]
        first = torch.cat([row.new_zeros(1), row.bincount(minlength=len(classes)).cumsum(0)])
        kept = other >= 0
        return Pairs(self.total, self.n[classes], first, other[kept], self.together[stored][kept])

    def both(self, a: int, b: int) -> Tensor:
        """Return co_uu' for the rows a .. b - 1, [b - a, C]."""
        first = self.first[a : b + 1]
        row = torch.repeat_interleave(torch.arange(b - a, device=first.device), first.diff())
        stored = slice(int(first[0]), int(first[-1]))
        return self.n.new_zeros(b - a, len(self.n)).index_put_((row, self.other[stored]), self.together[stored])

    def apart(self, a: int, b: int) -> Tensor:
        """Return n s_uu' for the rows a .. b - 1, [b - a, C]; 0 on the diagonal."""
        return self.n[a:b, None] - self.both(a, b)


def normalised(pairs: Pairs, a: int, b: int) -> Tensor:
    """Return gamma_uu' (C - 1) = (C - 1) s_uu' / sum_u' s_uu': mean 1 in each row; 1 where nothing is known about u."""
    apart = pairs.apart(a, b)
    total = apart.sum(1, keepdim=True)
    return torch.where(total > 0, (len(pairs.n) - 1) * apart / total.clamp(min=1e-12), 1.0)


def sigma(pairs: Pairs, a: int, b: int) -> Tensor:
    """Return sigma_uu' of Eq. 9."""
    return pairs.apart(a, b) / pairs.total


def counts(pairs: Pairs, a: int, b: int) -> Tensor:
    """Return n sigma_uu'."""
    return pairs.apart(a, b)


WEIGHTS: dict[str, Callable[[Pairs, int, int], Tensor]] = {
    "normalised": normalised,
    "sigma": sigma,
    "counts": counts,
}


@dataclass(frozen=True)
class Fixed:
    """Eq. 12 from counts: mean over examples of alpha sum_{u, u' both} d^2 + beta sum_{u, not u'} max(0, nu - d)^2."""

    pairs: Pairs
    alpha: float
    beta: float
    nu: float

    def __call__(self, a: int, b: int, d: Tensor) -> Tensor:
        both = self.pairs.both(a, b)
        apart = self.pairs.n[a:b, None] - both
        pull = -2 * self.alpha * both * d
        push = 2 * self.beta * apart * (self.nu - d).clamp(min=0)
        return without_self((pull + push) / self.pairs.total, a)
