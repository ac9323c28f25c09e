"""A federated method: its hyper-parameters, and hooks with FedAvg's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.hooks import overridden_hooks
from imperfed.core.labels import Labels
from imperfed.core.network import Network
from imperfed.core.objective import Objective

STEP_HOOKS = frozenset(
    {"draws", "prepare", "init_optimizer", "step_loss", "correct", "move", "gradient", "local_step"},
)


@dataclass(frozen=True)
class Algorithm:
    """A federated method. Fields are its hyper-parameters; the hooks below have FedAvg's defaults."""

    name: ClassVar[str]
    pools_data: ClassVar[bool] = False
    """Whether the sites' rows are brought together first: the reference nobody may have in practice."""
    made_for: ClassVar[type[Labels] | None] = None
    """The kind of labels it was made for, where its objective does not say so."""
    overridden: ClassVar[frozenset[str]] = frozenset()
    """The hooks that a class defines itself."""
    objective: Objective | None = None
    """None: the reference objective of the labels' kind."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.overridden = overridden_hooks(cls, Algorithm)

    @property
    def has_plain_steps(self) -> bool:
        """Whether a local step is the gradient of the objective and SGD with momentum, and nothing else."""
        return not self.overridden & STEP_HOOKS

    @property
    def needs_server_rows(self) -> bool:
        """Whether it asks for labelled rows at the server (`split.trusted`)."""
        return False

    @property
    def has_global_model(self) -> bool:
        """Whether the server's "w" is a model for all sites; not so where it keeps several and each is for some."""
        return True

    @property
    def not_mixable_because(self) -> str:
        """Why no rule may mix the sites' answers number by number; empty where one may."""
        return ""

    # -- the model ------------------------------------------------------------------------------------------------

    def build(self, network: Network) -> Network:
        """Changes to the network before round 0."""
        return network

    def is_personal(self, name: str) -> bool:
        """Whether the parameter of this name never leaves its site."""
        return False

    # -- a site ---------------------------------------------------------------------------------------------------

    def init_site(self, site: SiteSetup) -> Tree:
        """A site's memory before the first round."""
        return {}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        """Random numbers of a round's local steps: [steps], or [steps, batch, ...] for numbers of each row."""
        return {}

    def prepare(self, site: SiteContext) -> Tree:
        """What local training starts from; a site that chooses by its own data replaces or adds parts of `down`."""
        return site.down

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        """The optimiser's slots at the start of a round."""
        return {"v": torch.zeros_like(w)}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        """The scalar that a local step descends."""
        values, out = objective.loss(step.net, step.batch)
        return step.batch.mean(values), out

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        """What a method does to the gradient before the step."""
        return g

    def move(self, g: Tensor, step: LocalStep) -> None:
        """SGD with momentum: v <- m v + g, w <- w - lr v."""
        v = step.opt_state["v"]
        step.w.sub_(torch.add(g, v, alpha=step.momentum, out=v), alpha=step.lr)

    def gradient(self, loss: Tensor, step: LocalStep) -> Tensor:
        """The gradient that is stepped along."""
        g = step.net.backward(loss)
        if step.weight_decay:
            g.add_(step.w, alpha=step.weight_decay)
        return self.correct(g, step)

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        """One whole local step."""
        loss, out = self.step_loss(objective, step)
        self.move(self.gradient(loss, step), step)
        return loss.detach(), out

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        """What a site sends beside its shared weights, and its new memory."""
        return {}, done.memory

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        """What the server remembers beside "w" and "buffers" before round 0."""
        return {}

    def opening(self) -> tuple[Query, ...]:
        """One-shot exchanges with all sites before round 0; what they gather may add names to the server's memory."""
        return ()

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        """The exchanges of one round, in order."""
        return (Train(self.merge),)

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """FedAvg: the mean of the answers, weighted by the sites' sizes."""
        return server | updates.average(updates.by_size())

    def figures(self, server: Tree) -> dict[str, float]:
        """Numbers for the summary that only the method knows, such as the privacy spent."""
        return {}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        """The shared weights and buffers with which a site predicts."""
        return server["w"], server["buffers"]
