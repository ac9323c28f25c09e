"""FedCorr (Xu, Chen, Quek, Chong, "FedCorr: multi-stage federated learning for label noise correction", CVPR 2022).

Source: checked against the authors' code.

    symbol        where it lives                                             does it travel
    theta, t      server["w"], server["t"], the round                        down; theta also up, trained
    w_k           memory["w"], memory["buffers"]: the site's model after its last training    never again
    y             rows["y"], the labels as corrected so far                  never
    LID_k         mean over rows of `lid` of w_k's outputs                   up as "lid" in stage 1
    Lambda_k      server["lid"], LID_k summed over rounds                    never
    mu_k          server["mu"], estimated share of wrong labels, 0 at clean sites   up as "mu"; down as below
    M             server["noisy"]                                            never

    stage 1, T1 rounds:  MixUp + beta mu_k |w - theta|; then LID_k and mu_k by mixtures of two Gaussians; before the
                         next round noisy sites relabel, of the int(n_k mu_k pi) rows of largest loss under w_k, those
                         where theta is surer than the threshold
    stage 2, T2 rounds:  only sites with mu_k <= kappa are merged; then noisy sites relabel all rows where theta is sure
    stage 3:             FedAvg of all sites

Departs from the paper in: all sites on duty train in every round of stage 1, where the paper asks one site per round,
so that T1 is a number of rounds; LID_k and mu_k are asked for at the beginning of the next round; sites that stage 2
does not merge train all the same; a row is relabelled when it is next visited; losses are cross-entropies (the authors
apply the softmax twice); small sites take all other rows as neighbours, and rows whose neighbours are copies, or all at
one distance, are left out of LID_k. Mixtures start deterministically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from imperfed.algorithms._two_gaussians import higher_of_two
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import SLICE, LocalResult, LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.errors import UsageError, fraction, not_negative, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.labels import Exact
from imperfed.core.objective import Objective
from imperfed.nn.pairs import draw_pairs, partners

NEVER_REACHED = 3e38
"""A loss above all losses."""


@dataclass(frozen=True)
class CorrectedCE(Objective):
    """Cross-entropy towards labels that a method corrects on the way."""

    name: ClassVar[str] = "corrected-ce"
    labels: ClassVar[type[Exact]] = Exact

    def init_rows(self, labels: Exact) -> Tree:
        return {"y": labels.values.clone()}

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        y = batch.rows["y"]
        return cross_entropy(net(batch.x), y, reduction="none"), y

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"y": out}

    def infer_labels(self, logits: Tensor, labels: Exact, rows: Tree) -> Tensor:
        return one_hot(rows["y"], labels.classes).to(logits.dtype)


@dataclass(frozen=True)
class FedCorr(Algorithm):
    """For noisy labels: find noisy sites by their outputs' dimension, correct labels the model is sure of, train on."""

    name: ClassVar[str] = "fedcorr"
    changes_inputs: ClassVar[bool] = True
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"confidence": (0.5, 0.3, 0.7)}
    objective: Objective | None = CorrectedCE()
    stage1: int = 5  # T1, rounds in which noise is estimated and corrected
    stage2: int = 50  # T2, rounds in which clean sites alone are merged; the paper's 500 of 955 is for CIFAR-10
    beta: float = 5.0  # beta, the weight of the pull towards theta, times mu_k
    neighbours: int = 20  # K of LID
    relabel: float = 0.5  # pi, the share of rows thought to be wrong that may be relabelled
    confidence: float = 0.5  # theta_conf, what the model must be surer than
    kappa: float = 0.1  # kappa, the most noise at a site that counts as clean

    def __post_init__(self) -> None:
        positive("method", stage1=self.stage1, neighbours=self.neighbours)
        not_negative("method", stage2=self.stage2, beta=self.beta)
        fraction("method", confidence=self.confidence, kappa=self.kappa)
        if not isinstance(self.objective, CorrectedCE):
            raise UsageError("fedcorr corrects the labels of its own objective, corrected-ce, and needs it")

    # -- a site ---------------------------------------------------------------------------------------------------

    def init_site(self, site: SiteSetup) -> Tree:
        layout = site.layout
        return {"w": torch.zeros(layout.shared), "buffers": torch.zeros(layout.shared_end - layout.trainable)}

    def send(self, server: Tree, site: int) -> Tree:
        """Return the pull, beta mu_k in stage 1, and the share of rows that may be relabelled before this round."""
        t, mu, noisy = server["t"], server["mu"][site], server["noisy"][site]
        first, last = (t > 0) & (t <= self.stage1), t == self.stage1 + self.stage2
        share = torch.where(last, noisy, torch.where(first, self.relabel * mu, 0.0))
        return {"pull": torch.where(t < self.stage1, self.beta * mu, 0.0), "share": share}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"lam": torch.rand(steps, generator=generator), **draw_pairs(steps, batch, generator)}

    @torch.no_grad()
    def prepare(self, site: SiteContext) -> Tree:
        """Add the loss under w_k from which on a row may be relabelled."""
        losses = torch.cat([self.losses(site, batch) for batch in site.slices()])
        most = int(len(losses) * float(site.down["share"]) * (1 + 1e-6))  # in float32 a share may be just too small
        least = losses.sort(descending=True).values[most - 1] if most else losses.new_tensor(NEVER_REACHED)
        return site.down | {"least": least}

    def losses(self, site: SiteContext, batch: Batch) -> Tensor:
        """Return the cross-entropy under w_k of every row, towards its present label."""
        z = site.net.at(site.memory["w"], site.memory["buffers"], batch.x)
        return cross_entropy(z, batch.rows["y"], reduction="none")

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, lam = step.batch, step.batch.draws["lam"]
        y = self.corrected(step)
        pi = partners(batch)
        z = step.net(lam * batch.x + (1 - lam) * batch.x[pi])
        mixed = lam * cross_entropy(z, y, reduction="none") + (1 - lam) * cross_entropy(z, y[pi], reduction="none")
        return batch.mean(mixed), y  # lambda CE(f(x~), y) + (1 - lambda) CE(f(x~), y_pi)

    @torch.no_grad()
    def corrected(self, step: LocalStep) -> Tensor:
        """Return the labels of the batch, relabelled where the loss under w_k is large and theta is sure."""
        batch, y = step.batch, step.batch.rows["y"]
        own = step.net.at(step.memory["w"], step.memory["buffers"], batch.x)
        sure, guess = step.net.at(step.down["w"], step.down["buffers"], batch.x).softmax(-1).max(-1)
        large = cross_entropy(own, y, reduction="none") >= step.down["least"]
        return torch.where(large & (sure > self.confidence), guess, y)

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        theta = step.down["w"]
        away = step.w[: len(theta)] - theta
        g[: len(theta)] += step.down["pull"] * away / torch.linalg.vector_norm(away).clamp(min=1e-12)
        return g  # + the gradient of beta mu_k |w - theta|, which is 0 at w = theta

    @property
    def sends_beside_weights(self) -> str:
        return ""

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        layout = done.net.layout
        return {}, {"w": done.net.w[: layout.shared].clone(), "buffers": layout.buffers(done.net.row).clone()}

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"t": torch.zeros(()), **{name: torch.zeros(sites) for name in ("lid", "mu", "noisy")}}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        train = Train(self.merge, send=self.send)
        look = Query("noise", self.estimate, respond=self.describe)  # about the models trained in the round before
        return (look, train) if 0 < round <= self.stage1 else (train,)

    @torch.no_grad()
    def describe(self, site: SiteContext) -> Tree:
        """Return LID_k of w_k's outputs, and mu_k: the share of rows in the component of larger losses."""
        net, w, buffers = site.net, site.memory["w"], site.memory["buffers"]
        outputs = torch.cat([net.at(w, buffers, batch.x).softmax(-1) for batch in site.slices()])
        losses = torch.cat([self.losses(site, batch) for batch in site.slices()])
        return {"lid": lid_score(outputs, self.neighbours), "mu": higher_of_two(losses).to(losses).mean()}

    def estimate(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Add LID_k to Lambda_k, split the sites by it, and take over mu_k where a site is noisy."""
        who = updates.index
        total = server["lid"].index_add(0, who, updates["lid"])
        noisy = higher_of_two(total).to(total)
        return server | {"lid": total, "noisy": noisy, "mu": noisy * server["mu"].index_copy(0, who, updates["mu"])}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        t, mu = server["t"], server["mu"][updates.index]
        counted = torch.ones_like(mu, dtype=torch.bool)
        if self.stage1 <= t < self.stage1 + self.stage2:
            counted = mu <= torch.maximum(mu.min(), mu.new_tensor(self.kappa))  # none is clean: the least noisy
        p = updates.n * counted
        return server | updates.average(p / p.sum()) | {"t": t + 1}


def lid(outputs: Tensor, rows: Tensor, neighbours: int) -> Tensor:
    """Return LID(o_i) = -K / sum_j log(r_j / r_K) of these rows, r the distances to the K nearest other outputs."""
    far = torch.cdist(outputs[rows], outputs, compute_mode="donot_use_mm_for_euclid_dist")
    far.scatter_(1, rows[:, None], torch.inf)
    r = far.topk(neighbours, 1, largest=False).values
    total = (r.clamp(min=1e-12) / (r[:, -1:] + 1e-6)).log().sum(1)
    undefined = (total.abs() < 1e-4) | (r[:, -1] < 1e-6)  # all at one distance, or copies of the row
    return torch.where(undefined, torch.nan, -neighbours / (total + 1e-6))


def lid_score(outputs: Tensor, neighbours: int) -> Tensor:
    """Return the mean LID over a site's rows, as far as it is defined; 0 where it is not."""
    K, rows = min(neighbours, len(outputs) - 1), torch.arange(len(outputs), device=outputs.device)
    if K < 2:
        return outputs.new_zeros(())
    values = torch.cat([lid(outputs.double(), part, K) for part in rows.split(SLICE)])
    return values.nanmean().nan_to_num(0.0).to(outputs.dtype)
