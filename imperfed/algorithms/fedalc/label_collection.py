"""Label collection of FedALC (An et al., Sec. IV-E): which labels occur together, without showing examples.

    symbol      where it lives                              does it travel
    g_0         the common initial model, float64           down
    H           HMAC-SHA-256 under site.shared_key          never: the key is the sites', not the server's
    M_i         digests of g_0(x), and of the label's name  up, once, one pair per row
    L           server, counts of pairs of rows of W        never

Equal digests count as the same example, so two examples that g_0 cannot distinguish count as one. `hashed=input`
digests x itself: no example is mistaken for another, and thousands of sites need no pass through a large model.

Departs from the paper in: digests are keyed, since plain ones are inverted by trial. Labels are not hidden: a site
reports to which row of W each of its label digests belongs, and the server learns which labels occur together and how
often. For privacy towards those who receive W, Gaussian noise is added to the counts once, before anything is learned
from them, instead of to every gradient: all later steps on W then cost no more privacy. This covers what W learns from
the counts, not the sites' own updates of rows of W (see `_private_rows`; FedALC-fixed has none). The number of examples
counts as public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from imperfed.algorithms.fedalc.correlations import Pairs
from imperfed.algorithms.fedalc.digests import digests, numbered, quantised
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import QuorumError, not_negative, positive
from imperfed.core.exchange import Query, Updates
from imperfed.core.privacy_cost import accounting, spent

PAIRS = "pairs/"
PART = 1024
"""The number of examples embedded at once."""


@dataclass(frozen=True)
class Collecting:
    """The settings of label collection; a method that uses it adds `collection` to its `opening`."""

    noise: float = 0.0  # noise multiplier of differentially private counts; 0: exact counts
    hashed: Literal["embedding", "input"] = "embedding"  # what is digested: g_0(x), or x, which needs no model
    most: int = 10  # private counts: the most labels of an example that count, drawn at random; bounds its influence
    delta: float = 1e-5  # delta of (epsilon, delta)

    def check_collecting(self) -> None:
        """Refuse invalid settings."""
        not_negative("method", noise=self.noise)
        positive("method", most=self.most, delta=self.delta)
        if self.noise:
            accounting()

    def collection(self) -> Query:
        """Return the exchange, which is made once, before round 0."""
        return Query("collect", self.assemble, respond=self.collect)

    @torch.no_grad()
    def collect(self, site: SiteContext) -> Tree:
        """Return a site's digests of its examples and labels, and the rows of W it trains (Alg. 1, lines 6 to 8)."""
        rows = site.labels.values.unique()
        return {
            "example tag": digests(site.shared_key, "example", quantised(HASHED[self.hashed](site))),
            "label tag": label_tags(site.shared_key, site.labels.values),
            "row tag": label_tags(site.shared_key, rows),
            "row": rows,
        }

    def assemble(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Count pairs of classes from the sites' digests (Alg. 1, line 10)."""
        for k, part in zip(updates.who, updates.parts, strict=True):
            rows, known = part["row"], len(part["example tag"]) == len(part["label tag"])
            if (
                not known
                or len(rows) != len(part["row tag"])
                or not ((rows >= 0) & (rows < len(context.classes))).all()
            ):
                raise QuorumError(f"{context.sites[k]}: its digests are not one example and one known class each")
        named = {name: torch.cat([part[name] for part in updates.parts]) for name in updates.parts[0]}
        row = named["row"]
        example = numbered(named["example tag"]).to(row.device)  # digests are computed on the CPU
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
        """Return the privacy spent, for the summary."""
        return {"epsilon": float(server["epsilon"]), "delta": self.delta} if "epsilon" in server else {}


def embeddings(site: SiteContext) -> Tensor:
    """Return g_0(x) of all rows, in float64."""
    w, buffers = site.down["w"].double(), site.down["buffers"].double()
    parts = site.x.split(PART)
    return torch.cat([normalize(site.net.at(w, buffers, x.double(), features=True)) for x in parts])


HASHED: dict[str, Callable[[SiteContext], Tensor]] = {"embedding": embeddings, "input": lambda site: site.x.flatten(1)}


def label_tags(key: bytes, labels: Tensor) -> Tensor:
    """Return a digest of every label."""
    return digests(key, "label", [str(label).encode() for label in labels.tolist()])


# -- differential privacy --------------------------------------------------------------------------------------------


def drawn_labels(
    example: Tensor, label: Tensor, most: int, classes: int, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return (example, label) pairs, at most `most` random labels per example; a repeated pair counts once."""
    pair = (example * classes + label).unique()
    pair = pair[torch.randperm(len(pair), generator=draw).to(pair.device)]
    pair = pair[(pair // classes).argsort(stable=True)]  # examples in order, the labels of each in random order
    _, lengths = (pair // classes).unique_consecutive(return_counts=True)
    start = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    kept = pair[torch.arange(len(pair), device=pair.device) - start < most]
    return kept // classes, kept % classes


def noisy(pairs: Pairs, noise: float, most: int, draw: torch.Generator) -> Pairs:
    """Add Gaussian noise to n_u and co_uu', u < u': an example with m labels changes them by sqrt(m (m + 1) / 2)."""
    C = len(pairs.n)
    spread = noise * (most * (most + 1) / 2) ** 0.5
    upper = torch.triu(pairs.both(0, C) + (spread * torch.randn(C, C, generator=draw)).to(pairs.n))
    n = upper.diagonal().clamp(min=0)
    co = (upper + upper.triu(1).T).clamp(min=0)
    co = torch.minimum(co, torch.minimum(n[:, None], n[None])).fill_diagonal_(0) + n.diag()
    first, other = (torch.arange(end, device=n.device) for end in (C + 1, C))
    first, other = first * C, other.repeat(C)
    return replace(pairs, n=n, first=first, other=other, together=co.reshape(-1))
