"""FedPSL (Dong et al., "Federated partially supervised learning with limited decentralized medical images", IEEE TMI
2023): each site annotates only some classes. Equation and line numbers: the journal version; lines are those of Alg. 1.

    symbol           where it lives                             does it travel
    theta            every weight below `head`                  down and up, merged by n_k / n
    phi^c            row c of head.weight and of head.bias      down and up, merged by annotations of c (TDMA)
    n_k              Updates.n                                  the site's claim
    n_k^c            memory["annotated"], one per class         up; the site's claim, at most n_k
    theta'           FedPSL.decoupled, part of `ahead`          never: one plain step from theta
    B_train, B_val   every other row of a batch                 never
    alpha            `a` inside theta', otherwise local.lr      never
    beta             local.lr                                   never

With both parts off this is the paper's FedAvg (Eq. 6): the same Adam steps, all weights merged by n_k / n. Adam's
state starts at zero in each round, so `local.momentum` is not used. Where no label is missing, n_k^c = n_k and TDMA is
FedAvg.

Departs from the paper in: a class that no participating site annotates keeps its row, where Eq. 9 divides by 0; theta'
is a plain step with its own step size `a`, while phi and theta take Adam steps (the paper prints plain steps but names
Adam); weight decay, which the paper does not use, acts on the two outer steps only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.algorithms._head_rows import merged_rows
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteSetup
from imperfed.core.errors import not_negative
from imperfed.core.exchange import Updates
from imperfed.core.labels import Annotated, Labels
from imperfed.core.objective import Objective
from imperfed.nn.double_backward import DoubleBackward
from imperfed.nn.optimizers import Adam


@dataclass(frozen=True)
class FedPSL(Algorithm):
    """For classes annotated at some sites only: a head merged class by class, features learned by a meta-gradient."""

    name: ClassVar[str] = "fedpsl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"a": (0.001, 0.01, 0.1)}
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    made_for: ClassVar[type[Labels] | None] = Annotated
    tdma: bool = True  # task-dependent model aggregation, Eq. 9
    tadl: bool = True  # task-agnostic decoupling learning, Alg. 1
    order: Literal[1, 2] = 2  # 2: the meta-gradient through theta'; 1: theta' treated as a constant shift
    a: float = 0.001  # alpha of line 6, the step size inside theta'

    def __post_init__(self) -> None:
        not_negative("method", a=self.a)

    @property
    def not_mixable_because(self) -> str:
        return "each counts for the classes that it annotates (method.tdma)" if self.tdma else ""

    @property
    def fixed_recipe(self) -> dict[str, str]:
        unclipped = {"clip": "a step of Alg. 1 goes along two gradients (method.tadl)"}
        return {"optimizer": "its steps are those of Adam already"} | (unclipped if self.tadl else {})

    # -- a site ---------------------------------------------------------------------------------------------------

    def init_site(self, site: SiteSetup) -> Tree:
        if not self.tdma:
            return {}
        known = site.labels.values.reshape(site.n, -1) >= 0
        return {"annotated": known.sum(0).to(torch.get_default_dtype()).expand(site.labels.classes)}  # n_k^c

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "t": w.new_zeros(())}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        step.opt_state["t"] += 1
        return self.decoupled(objective, step) if self.tadl else super().local_step(objective, step)

    def move(self, g: Tensor, step: LocalStep) -> None:
        step.w.sub_(self.adam(g, step, slice(None)))

    def adam(self, g: Tensor, step: LocalStep, part: slice) -> Tensor:
        """Return the Adam step of this part of the weights along g."""
        m, v, t = step.opt_state["m"][part], step.opt_state["v"][part], step.opt_state["t"]
        return Adam(m, v).move(g, step.lr, t)

    def decoupled(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        """Make one step of Alg. 1, lines 4 to 9. Weights change last: the graph of L_train needs the old ones."""
        net, w, cut = step.net, step.w, step.net.layout.fields["head.weight"].offset  # [theta | phi]
        train, val = half(step.batch, 0), half(step.batch, 1)
        decay = step.weight_decay * w
        with torch.no_grad():  # `update_rows` needs the output for the rows of both halves
            out = objective.loss(net, step.batch)[1] if step.batch.rows else None
        with DoubleBackward():  # Eq. 11 differentiates the gradient of L_train
            L_train = train.mean(objective.loss(net, train)[0])
        g = net.gradient(L_train) if self.order == 2 else net.backward(L_train)
        g_train = g.detach()
        theta = w[:cut] - self.a * g_train[:cut]  # line 6: theta'
        phi = w[cut:] - self.adam(g_train[cut:] + decay[cut:], step, slice(cut, None))  # line 7
        ahead = torch.cat([theta, phi]).requires_grad_()
        L_val = val.mean(objective.loss(net.through(ahead), val)[0])
        g_val = torch.autograd.grad(L_val, ahead)[0][:cut]
        if self.order == 2:
            g_val = g_val - self.a * net.backward(g[:cut] @ g_val)[:cut]  # Eq. 11: (I - alpha H_train) grad L_val
        w[:cut] -= self.adam(g_val + decay[:cut], step, slice(cut))  # line 9
        w[cut:] = phi
        return L_train.detach(), out

    @property
    def sends_beside_weights(self) -> str:
        return "its numbers of annotations" if self.tdma else ""

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return dict(done.memory), done.memory

    # -- the server -----------------------------------------------------------------------------------------------

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.by_size())  # Eq. 6, and theta of Eq. 9
        if self.tdma:
            self.by_class(new["w"], server["w"], updates, context)
        return server | new

    def by_class(self, new: Tensor, old: Tensor, updates: Updates, context: ServerContext) -> None:
        """Write phi of Eq. 9 into the new weights; a personal head is not merged."""
        n_kc = torch.minimum(updates["annotated"].clamp(min=0), updates.n.unsqueeze(1))
        n_c, layout = n_kc.sum(0), context.net.layout
        for name, merged in merged_rows(updates["w"], n_kc / n_c.clamp(min=1), layout):
            known = (n_c > 0).view(-1, *[1] * (merged.ndim - 1))
            layout.view(new, name).copy_(torch.where(known, merged, layout.view(old, name)))
        if context.round == 0 and (missing := (n_c == 0).nonzero().flatten().tolist()):
            names = ", ".join(context.classes[c] for c in missing)
            context.notes.append(f"fedpsl: no site that answered annotates {names}: the head's rows are unchanged")


def half(batch: Batch, first: int) -> Batch:
    """Return every second row: rows are in random order, and padding after them moves no row into the other half."""
    rows = torch.arange(first, len(batch.x), 2, device=batch.x.device)
    memory = {name: t[rows] for name, t in batch.rows.items()}
    draws = {name: t[rows] if t.ndim else t for name, t in batch.draws.items()}
    return Batch.of(batch.x[rows], batch.labels.take(rows), batch.real[rows], memory, draws, batch.site_stats)
