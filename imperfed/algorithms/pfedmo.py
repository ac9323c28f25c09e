"""pFedMo: personalised federated learning with contrastive momentum (thesis, chapter 3; its equation numbers).

Workers make Nesterov steps. Meanwhile the server trains a representation model on labelled rows that it alone holds
(`split.trusted`), scores how close each worker is to it, and pulls each worker's model and momentum towards it.

    symbol        where it lives                      does it travel
    w_i           step.w, server["w_k"][i]            down and up
    m_i           server["m_k"][i], by `reading`      down and up
    y_i           opt_state["y"], last plain step     never: it follows from w_i and m_i
    w_r, m_r      server["w_r"], server["m_r"]        never: the representation model
    w_+           server["w"], the global model       never: every worker continues from its own w_i+
    u_i           server["u"], largest loss so far    never
    D_i / D       PFedMo.aggregation                  D_i is the site's claim

(3.2) and (3.3) call the point after the plain gradient step m. In (3.7) and (3.8) that m makes the position of the
representation model cancel and drives the workers away from it until they diverge (`reading=printed`). With m read as
the velocity w - y the same two equations work: the default. `reading=mix` keeps m as the gradient point and leaves out
the last two terms of (3.8). With all scores 0, as in the first round, all three are FedNAG.

The method has its own momentum, so `local.momentum` is not used. Absent workers keep their pair; those whose answer a
defence leaves out continue from the mean of the others' new pairs. Normalisation buffers are the workers' mean, from
which the representation model starts its own in every round.

Departs from the thesis in: the reading; the inputs scored are the server's labelled ones (`score_on=test`: test inputs
from `split.public`, as in the thesis); a loss that is not finite gives the score 0, and without labelled rows at the
server all scores are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.rates import descend

Reading = Literal["velocity", "mix", "printed"]


@dataclass(frozen=True)
class PFedMo(Algorithm):
    """Nesterov steps, and each worker pulled towards a model that the server trains on its own labelled rows."""

    name: ClassVar[str] = "pfedmo"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"pi": (1.0, 0.5, 0.1)}
    gamma: float = 0.5  # gamma, the momentum factor
    pi: float = 1.0  # pi, the weight of a score
    reading: Reading = "velocity"  # what m is: "velocity" w - y, "printed" y, "mix" y without the last terms of (3.8)
    representation: Literal["continue", "restart"] = "continue"  # w_r: kept over rounds, or from the global model
    score_on: Literal["public", "test"] = "public"  # inputs scored: the server's labelled rows, or test inputs
    scored: int = 64  # B, how many inputs are scored
    aggregation: Literal["weighted", "uniform"] = "weighted"  # weights of the workers: D_i / D, or 1/N

    def __post_init__(self) -> None:
        if not (0 <= self.gamma < 1 and 0 <= self.pi <= 1):
            raise UsageError(f"method.gamma must be at least 0 and below 1, method.pi between 0 and 1; got {self}")
        positive("method", scored=self.scored)

    @property
    def uses_public(self) -> bool:
        return self.score_on == "test"

    @property
    def needs_server_rows(self) -> bool:
        return True

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "its workers make Nesterov steps, whose momentum the server merges"}

    def momentum(self, w: Tensor, y: Tensor) -> Tensor:
        """Return m, computed from the two sequences."""
        return w - y if self.reading == "velocity" else y

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        y, m = w.clone(), down["m"]
        y[: len(m)] = down["w"] - m if self.reading == "velocity" else m
        return {"y": y}

    def move(self, g: Tensor, step: LocalStep) -> None:
        y = step.opt_state["y"]
        new = descend(step.w, g, step.lr)  # (3.2)
        torch.add(new, new - y, alpha=self.gamma, out=step.w)  # (3.3)
        y.copy_(new)

    def pair(self, done: LocalResult) -> tuple[Tensor, Tensor]:
        """Return w and m after the last step."""
        S = len(done.down["m"])
        w = done.net.w[:S].clone()
        return w, self.momentum(w, done.opt_state["y"][:S])

    @property
    def sends_beside_weights(self) -> str:
        return "its momentum"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"m": self.pair(done)[1]}, done.memory

    def init_server(self, w: Tensor, sites: int) -> Tree:
        m = self.momentum(w, w)  # y^0 = w^0
        pairs = {"w_k": w.repeat(sites, 1), "m_k": m.repeat(sites, 1), "w_r": w.clone(), "m_r": m.clone()}
        return pairs | {"u": torch.zeros(sites)}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return the worker's own pair, from which training starts."""
        return {"w": server["w_k"][site], "m": server["m_k"][site]}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        return server["w_k"][site], server["buffers"]

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        who = updates.index
        p = updates.by_size() if self.aggregation == "weighted" else torch.full_like(updates.n, 1 / len(updates.n))
        w_r, m_r, losses = self.represent(server, updates, context)
        s, u = self.scores(losses, server["u"][who], context)
        mean, m, share = updates.average(p), updates.weighted_sum("m", p), (self.pi * s).unsqueeze(1)
        m_plus = (1 - share) * m + share * m_r  # (3.7)
        w_plus = (1 - share) * mean["w"] + share * w_r  # (3.8), its first two terms
        if self.reading != "mix":
            w_plus = w_plus + m - m_plus  # (3.8), its last two
        kept = {"w_k": w_plus, "m_k": m_plus, "u": u}  # Alg. 1, lines 15 and 16
        new = {name: server[name].index_copy(0, who, t) for name, t in kept.items()}
        w = p @ w_plus  # w_+: Alg. 1, line 14
        new["w_k"][list(context.left_out)], new["m_k"][list(context.left_out)] = w, p @ m_plus
        return server | mean | new | {"w": w, "w_r": w_r, "m_r": m_r}

    def represent(self, server: Tree, updates: Updates, context: ServerContext) -> tuple[Tensor, Tensor, Tensor]:
        """Return the representation pair after as many steps as a worker makes, and each worker's loss against it."""
        w_r, m_r = server["w_r"], server["m_r"]
        if context.trusted is None:
            context.notes.append("the server holds no labelled rows: every score is 0, and this is FedNAG")
            return w_r, m_r, torch.zeros_like(updates.n)
        if self.representation == "restart":
            w_r, m_r = server["w"], self.momentum(server["w"], server["w"])
        done = context.train({"w": w_r, "m": m_r, "buffers": server["buffers"]})
        inputs = context.trusted.x if self.score_on == "public" else context.public
        if not len(inputs):
            raise UsageError("method.score_on = test scores test inputs, but the server has none; set split.public")
        x = inputs[torch.randperm(len(inputs), generator=context.draw)[: self.scored]]
        return *self.pair(done), self.losses(done, x, updates)

    @torch.no_grad()
    def losses(self, done: LocalResult, x: Tensor, updates: Updates) -> Tensor:
        """Return l_i of every worker: the cross-entropy of its predictions against the representation model's."""
        g = softmax(done.net(x), -1)  # (3.5)
        models = zip(updates["w"], updates["buffers"], strict=True)
        return torch.stack([cross_entropy(done.net.at(w, buffers, x), g) for w, buffers in models])  # (3.4), (3.6)

    def scores(self, losses: Tensor, u: Tensor, context: ServerContext) -> tuple[Tensor, Tensor]:
        """Return s_i = 1 - l_i / u_i and the new u_i (Alg. 2); s_i is 0 where u_i is 0 or l_i is not finite."""
        finite = torch.isfinite(losses)
        if not finite.all():
            context.notes.append(f"{int((~finite).sum())} of {len(losses)} losses were not finite: their scores are 0")
        u = torch.where(finite, torch.maximum(u, losses), u)
        known = finite & (u > 0)
        return torch.where(known, 1 - losses / torch.where(known, u, 1.0), 0.0), u
