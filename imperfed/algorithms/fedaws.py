"""FedAwS: federated averaging with spreadout (Yu et al., "Federated learning with only positive labels", ICML 2020).

Equation numbers: those of FedALC (An et al.), which restates the method.

Source: equations and defaults are from a public summary of the paper and from FedALC's paper; compared with the code of
three third parties, two of which train sites by the softmax over all classes and were not followed.

    symbol      where it lives                        does it travel
    theta       server["w"] without its head          down and up, mean of all
    w_y         a row of the head of server["w"]      down and up with all of W; in the paper where class y is held
    held        server, (site, class, rows) triples   up, once, in the clear: which rows of W a site trains
    Delta_k     a site's change to its rows           up, in them; noise_w clips it and adds noise: see `_private_rows`
    N_K(u)      computed by the server in each round  never
    lambda      lam, times lr_server                  never

With `lam` 0 this is FedAvg on the positive loss, with every site moving its own rows of W: it collapses. Rows of W that
no participating site holds stay as they were.

Departs from the paper in: lambda eta is a product of two settings, since the papers contradict themselves about eta;
where several sites hold a class, its row of W is their mean, weighted by their numbers of examples; where a site holds
several classes, `one_pass` moves a row of W along the mean gradient over all examples of its class. The (K+1)-th
distance as margin (`nu` 0) and Eq. 7 (`mined`), which the papers call equivalent, are options: with a squared hinge the
first has no gradient where classes are packed. The pairs of classes grow with the square of their number: with `drawn`
the server's step acts between so many classes, drawn again in every round, and leaves the others where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from imperfed.algorithms._class_embeddings import HEAD, ClassEmbeddings
from imperfed.algorithms._private_rows import PrivateRows
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import UsageError, not_negative
from imperfed.core.exchange import Query, Updates
from imperfed.nn.embeddings import Force, Spread, gradient, mean_cosine

COLLAPSED = 0.5
"""The mean cosine between classes above which the log warns; that of random embeddings is 0."""


@dataclass(frozen=True)
class FedAwS(PrivateRows, ClassEmbeddings):
    """Averaging on the positive loss; the server pushes the class embeddings apart, all pairs with equal weight."""

    name: ClassVar[str] = "fedaws"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lam": (10.0, 3.0, 30.0)}
    lr_w: float = 0.1  # eta of w_y at its site
    lam: float = 10.0  # lambda
    lr_server: float = 0.001  # eta of the server's step; only the product lambda eta matters
    neighbours: int = 0  # K of N_K(u); 0: all other classes
    nu: float = 1.0  # margin; 0: the distance to the (K + 1)-th nearest class
    mined: bool = False  # Eq. 7 instead of the hinge
    drawn: int = 0  # classes between which the server's step acts, drawn in each round; 0: all; for very many classes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_private()
        not_negative("method", lr_w=self.lr_w, lam=self.lam, lr_server=self.lr_server)
        not_negative("method", neighbours=self.neighbours, nu=self.nu, drawn=self.drawn)
        if self.mined and not self.neighbours:
            raise UsageError(f"setting mined of {self.name} sums over neighbours; set neighbours above 0")

    @property
    def rate_w(self) -> float:
        return self.lr_w

    def opening(self) -> tuple[Query, ...]:
        return (Query("held", self.remember_holders, respond=self.classes_held),)

    def classes_held(self, site: SiteContext) -> Tree:
        """Report the classes that a site holds and their numbers of rows: the server must know who trains what in W."""
        label, n = site.labels.values.unique(return_counts=True)
        return {"label": label, "n": n}

    def remember_holders(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Keep the sites' claims as triples."""
        label = torch.cat([part["label"] for part in updates.parts])
        n = torch.cat([part["n"] for part in updates.parts])
        lengths = label.new_tensor([len(part["label"]) for part in updates.parts])
        site = label.new_tensor(updates.who).repeat_interleave(lengths)
        held = {"held/site": site, "held/label": label, "held/n": n.float()}
        return server | held | self.nothing_released(label, len(context.classes), self.one_pass)

    def holdings(self, server: Tree, who: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return position in `who`, class and number of rows for every class that a site in `who` holds."""
        site = server["held/site"]
        place = site.new_full((int(site.max()) + 1,), -1)
        place[list(who)] = torch.arange(len(who), device=site.device)
        at = place[site]
        present = at >= 0
        return at[present], server["held/label"][present], server["held/n"][present]

    def traffic(self, server: Tree, context: ServerContext) -> tuple[int, int]:
        theta = super().traffic(server, context)[1]
        D = context.net.layout.fields[HEAD].shape[1]
        rows = len(server["held/site"]) / len(server["held/site"].unique())
        return theta + round(rows * D), theta + round(rows * D)

    def rows(self, server: Tree, updates: Updates, context: ServerContext) -> tuple[Tensor, Tree]:
        view = context.net.layout.view
        W, W_k = view(server["w"], HEAD), view(updates["w"], HEAD)
        at, label, _ = held = self.holdings(server, updates.who)
        return self.moved(server, W_k[at, label] - W[label], held, context)

    def rows_at_once(self, server: Tree, updates: Updates, g: Tensor, context: ServerContext) -> tuple[Tensor, Tree]:
        at, label, n = held = self.holdings(server, updates.who)
        share = (self.shares(updates.n) / updates.n)[at] * n
        p_c = g.new_zeros(len(g)).index_add_(0, label, share)  # the weight that class c had in the sum
        return self.moved(server, -self.lr_w * (g[label] / p_c[label].unsqueeze(1)), held, context)

    def moved(
        self, server: Tree, change: Tensor, held: tuple[Tensor, Tensor, Tensor], context: ServerContext
    ) -> tuple[Tensor, Tree]:
        """Return W after the sites' changes to the rows they hold."""
        at, label, n = held
        W = context.net.layout.view(server["w"], HEAD)
        n_c = n.new_zeros(len(W)).index_add_(0, label, n)
        share = n / n_c[label]
        W = W.index_add(0, label, self.bounded(change, at) * share.unsqueeze(1))  # Alg. 1, line 20
        largest = torch.zeros_like(n_c).scatter_reduce(0, label, share, "amax")
        return self.release(server, W, largest, context.draw)

    def figures(self, server: Tree) -> dict[str, float]:
        return self.spent_on_rows(server)

    def force(self, server: Tree, among: Tensor | None = None) -> Force:
        """Return the force of reg(W), Eq. 6 or Eq. 7; `among`: of these rows of W alone."""
        return Spread(self.neighbours, self.nu, self.mined, None)

    def spread(self, server: Tree, W: Tensor, draw: torch.Generator) -> Tensor:
        """Return W after the server's step."""
        step = self.lam * self.lr_server
        if not 0 < self.drawn < len(W):
            return normalize(W - step * gradient(W, self.force(server)))  # Alg. 1, line 21
        among = torch.randperm(len(W), generator=draw)[: self.drawn].sort().values.to(W.device)
        some = W[among]
        return W.index_copy(0, among, normalize(some - step * gradient(some, self.force(server, among))))

    def embed(self, server: Tree, before: Tensor, W: Tensor, context: ServerContext) -> Tensor:
        if self.lam * self.lr_server:
            W = self.spread(server, W, context.draw)
        now = mean_cosine(W)
        if mean_cosine(before) <= COLLAPSED < now:
            context.notes.append(
                f"{self.name}: the class embeddings are collapsing (mean cosine {float(now):.2f}): raise lam or "
                "lr_server, or lower lr_w"
            )
        return W
