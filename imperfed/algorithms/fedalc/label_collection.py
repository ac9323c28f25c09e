"""Label collection of FedALC (An et al., Sec. IV-E): which labels come together, without showing examples.

    symbol      where it lives                              does it travel
    g_0         the common first model, float64             down
    H           HMAC-SHA-256 under site.shared_key          never: the key is the sites', not the server's
    M_i         digests of g_0(x), and of the label's name  up, once, a pair a row
    L           server, counts of pairs of rows of W        never

Equal digests are the same example, so two examples that g_0 cannot tell apart count as one. `hashed=input` digests x
itself: no example is mistaken for another, and thousands of sites need no pass through a large model.

Departs from the paper in: digests are keyed, since plain ones are undone by trying. Labels are not hidden: a site says
which row of W each of its label digests is, and the server learns which come together and how often. For privacy
towards those who receive W the counts get Gaussian noise once, before anything is learned from them, instead of every
gradient: all later steps on W then cost nothing more. This covers what W learns by the counts, not the steps that sites
make on rows of W (see `_private_rows`), which are none in FedALC-fixed. The number of examples counts as public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from imperfed.algorithms._private_rows import accounting, spent
from imperfed.algorithms.fedalc.correlations import Pairs
from imperfed.algorithms.fedalc.digests import digests, numbered, quantised
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import not_negative, positive
from imperfed.core.exchange import Query, Updates

PAIRS = "pairs/"
PART = 1024
"""Examples digested at once."""


@dataclass(frozen=True)
class Collecting:
    """The settings of label collection; a method that uses it adds `opening` to its exchanges."""

    noise: float = 0.0  # noise multiplier of differentially private counts; 0: exact counts
    hashed: Literal["embedding", "input"] = "embedding"  # what is digested: g_0(x), or x, which takes no model
    most: int = 10  # private counts: labels of an example that count, drawn; bounds what one example can change
    delta: float = 1e-5  # delta of (epsilon, delta)

    def check_collecting(self) -> None:
        """Refuse settings that mean nothing."""
        not_negative("method", noise=self.noise)
        positive("method", most=self.most, delta=self.delta)
        if self.noise:
            accounting()

    def collection(self) -> Query:
        """Return the exchange, made once, before round 0."""
        return Query("collect", self.assemble, respond=self.collect)

    @torch.no_grad()
    def collect(self, site: SiteContext) -> Tree:
        """A site's answer (Alg. 1, lines 6 to 8): digests of its examples and their labels, and the rows it trains."""
        rows = site.labels.values.unique()
        return {
            "example tag": digests(site.shared_key, "example", quantised(HASHED[self.hashed](site))),
            "label tag": label_tags(site.shared_key, site.labels.values),
            "row tag": label_tags(site.shared_key, rows),
            "row": rows,
        }

    def assemble(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Counts of pairs of classes from the sites' digests (Alg. 1, line 10)."""
        named = {name: torch.cat([part[name] for part in updates.parts]) for name in updates.parts[0]}
        row = named["row"]
        example = numbered(named["example tag"]).to(row.device)  # digests are made by the host
        tag = numbered(torch.cat([named["row tag"], named["label tag"]])).to(row.device)
        row_of = row.new_zeros(int(tag.max()) + 1).scatter(0, tag[: len(row)], row)
        label = row_of[tag[len(row) :]]
        if not self.noise:
            return server | Pairs.of(example, label, len(context.classes)).tree(PAIRS)
        kept = drawn_labels(example, label, self.most, len(context.classes), context.draw)
        pairs = noisy(Pairs.of(*kept, len(context.classes)), self.noise, self.most, context.draw)
        epsilon = spent(self.noise, self.delta)
        context.notes.append(f"label counts are ({epsilon:.3g}, {self.delta:g})-differentially private")
        return server | pairs.tree(PAIRS) | {"epsilon": torch.tensor(epsilon)}

    def privacy(self, server: Tree) -> dict[str, float]:
        """What the summary says of it."""
        return {"epsilon": float(server["epsilon"]), "delta": self.delta} if "epsilon" in server else {}


def embeddings(site: SiteContext) -> Tensor:
    """g_0(x) of all rows, in float64."""
    w, buffers = site.down["w"].double(), site.down["buffers"].double()
    parts = site.x.split(PART)
    return torch.cat([normalize(site.net.at(w, buffers, x.double(), features=True)) for x in parts])


HASHED: dict[str, Callable[[SiteContext], Tensor]] = {"embedding": embeddings, "input": lambda site: site.x.flatten(1)}


def label_tags(key: bytes, labels: Tensor) -> Tensor:
    """A digest of every label."""
    return digests(key, "label", [str(label).encode() for label in labels.tolist()])


# -- differential privacy --------------------------------------------------------------------------------------------


def drawn_labels(
    example: Tensor, label: Tensor, most: int, classes: int, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(example, label) pairs with at most `most` labels an example, drawn at random; a pair said twice counts once."""
    pair = (example * classes + label).unique()
    pair = pair[torch.randperm(len(pair), generator=draw).to(pair.device)]
    pair = pair[(pair // classes).argsort(stable=True)]  # examples in order, the labels of each at random
    _, lengths = (pair // classes).unique_consecutive(return_counts=True)
    start = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    kept = pair[torch.arange(len(pair), device=pair.device) - start < most]
    return kept // classes, kept % classes


def noisy(pairs: Pairs, noise: float, most: int, draw: torch.Generator) -> Pairs:
    """The Gaussian mechanism on n_u and co_uu', u < u': one example of m labels changes them by sqrt(m (m + 1) / 2)."""
    C = len(pairs.n)
    spread = noise * (most * (most + 1) / 2) ** 0.5
    upper = torch.triu(pairs.both(0, C) + (spread * torch.randn(C, C, generator=draw)).to(pairs.n))
    n = upper.diagonal().clamp(min=0)
    co = (upper + upper.triu(1).T).clamp(min=0)
    co = torch.minimum(co, torch.minimum(n[:, None], n[None])).fill_diagonal_(0) + n.diag()
    first, other = (torch.arange(end, device=n.device) for end in (C + 1, C))
    first, other = first * C, other.repeat(C)
    return replace(pairs, n=n, first=first, other=other, together=co.reshape(-1))
