"""The base class of federated methods: hyper-parameters, and hooks whose defaults are FedAvg's."""

from __future__ import annotations

from collections.abc import Mapping
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
from imperfed.core.rates import descend

STEP_HOOKS = frozenset(
    {"draws", "prepare", "init_optimizer", "step_loss", "correct", "move", "gradient", "local_step"},
)

SMALL = 1e-6
"""What is added to a norm before it divides, as in torch."""


@dataclass(frozen=True)
class Algorithm:
    """A federated method. Its fields are hyper-parameters; the defaults of the hooks below make FedAvg."""

    name: ClassVar[str]
    pools_data: ClassVar[bool] = False
    """Whether all sites' rows are pooled before training: a reference that is out of reach in practice."""
    complete_labels: ClassVar[bool] = False
    """Whether no label is kept from it that a simulation keeps from sites: a reference that is out of reach as well."""
    changes_inputs: ClassVar[bool] = False
    """Whether it trains on changed or mixed inputs, which sparse features, stored by their numbers, do not allow."""
    made_for: ClassVar[type[Labels] | None] = None
    """The kind of labels the method was designed for, where its objective does not say so."""
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = None
    """What `auto` tries of the method's own settings, {} being its defaults; None: `auto` leaves the method out."""
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """The setting of its own that a fair comparison tries beside the learning rate, and its values; {}: none."""
    rate_setting: ClassVar[str] = "local.lr"
    """The setting that is its learning rate."""
    overridden: ClassVar[frozenset[str]] = frozenset()
    """The hooks that the class overrides."""
    objective: Objective | None = None
    """None: the reference objective of the labels' kind."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.overridden = overridden_hooks(cls, Algorithm)

    @property
    def has_plain_steps(self) -> bool:
        """Whether a local step is one of the run's optimizer on the objective, and nothing else."""
        return not self.overridden & STEP_HOOKS

    @property
    def needs_server_rows(self) -> bool:
        """Whether the method needs labelled rows at the server (`split.trusted`)."""
        return False

    @property
    def uses_public(self) -> bool:
        """Whether the method uses unlabelled inputs at the server (`split.public`); otherwise none are taken."""
        return False

    @property
    def has_global_model(self) -> bool:
        """Whether the server's "w" is one model for all sites, rather than one of several that each serve some."""
        return True

    @property
    def not_mixable_because(self) -> str:
        """Why the sites' answers must not be combined coordinate by coordinate; empty where they may be."""
        return ""

    @property
    def sends_beside_weights(self) -> str:
        """What `reply` adds to the shared weights and buffers that a site sends, in words; empty if nothing."""
        return "what its `reply` adds" if "reply" in self.overridden else ""

    @property
    def needs_only_the_mean(self) -> bool:
        """Whether `merge` needs nothing of the sites' weights but their mean, weighted by the sites' sizes."""
        return "merge" not in self.overridden

    @property
    def leaves_out(self) -> float:
        """The largest share of a batch's rows that a step leaves out: its gradient rests on the others alone."""
        return 0.0

    @property
    def fixed_recipe(self) -> dict[str, str]:
        """The parts of the training recipe that the method decides itself, each with the reason.

        The parts are settings of `local`: optimizer, schedule, clip. What is chosen for them otherwise is refused.
        """
        hooks = {"optimizer": ("move", "local_step", "init_optimizer"), "clip": ("local_step", "gradient")}
        own = {part: [hook for hook in those if hook in self.overridden] for part, those in hooks.items()}
        return {part: f"it defines {' and '.join(those)} of its own" for part, those in own.items() if those}

    # -- the model ------------------------------------------------------------------------------------------------

    def build(self, network: Network) -> Network:
        """Return the network with the changes that the method needs; called once, before round 0."""
        return network

    def is_personal(self, name: str) -> bool:
        """Return whether the parameter of this name stays at its site."""
        return False

    # -- a site ---------------------------------------------------------------------------------------------------

    def init_site(self, site: SiteSetup) -> Tree:
        """Return a site's memory before the first round."""
        return {}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        """Return the random numbers of a round's local steps: [steps], or [steps, batch, ...] for numbers per row."""
        return {}

    def prepare(self, site: SiteContext) -> Tree:
        """Return what local training starts from: `down`, with parts replaced or added by the site's own choice."""
        return site.down

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        """Return the state of SGD, or of the method's own steps, at the start of a round."""
        return {"v": torch.zeros_like(w)}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        """Return the loss of a local step, and what `Objective.loss` returned for `Objective.update_rows`."""
        values, out = objective.loss(step.net, step.batch)
        return step.batch.mean(values), out

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        """Return the gradient as the method corrects it before the step."""
        return g

    def move(self, g: Tensor, step: LocalStep) -> None:
        """Make a step of the run's optimizer; SGD with momentum: v <- m v + g, w <- w - lr v."""
        if step.optimizer is None:
            w, v = step.w, step.opt_state["v"]
            descend(w, torch.add(g, v, alpha=step.momentum, out=v), step.lr, out=w)
        else:
            step.optimizer.move(g, step)

    def gradient(self, loss: Tensor, step: LocalStep) -> Tensor:
        """Return the gradient along which the step goes: of the loss, clipped; then weight decay and `correct`."""
        g = step.net.backward(loss)
        if step.clip:  # one norm per site where several sites step together
            g.mul_((step.clip / (torch.linalg.vector_norm(g, dim=-1, keepdim=True) + SMALL)).clamp_(max=1))
        if step.weight_decay:
            g.add_(step.w, alpha=step.weight_decay)
        return self.correct(g, step)

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        """Make one whole local step; return its loss and what `Objective.loss` returned for `Objective.update_rows`."""
        loss, out = self.step_loss(objective, step)
        self.move(self.gradient(loss, step), step)
        return loss.detach(), out

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        """Return what a site sends besides its shared weights, and its new memory."""
        return {}, done.memory

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        """Return what the server remembers besides "w" and "buffers" before round 0."""
        return {}

    def opening(self) -> tuple[Query, ...]:
        """Return the exchanges with all sites before round 0; they may add names to the server's memory."""
        return ()

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        """Return the exchanges of one round, in order."""
        return (Train(self.merge),)

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Return the server's new memory; by default FedAvg's, the mean of the answers weighted by the sites' sizes."""
        return server | updates.average(updates.by_size())

    def figures(self, server: Tree) -> dict[str, float]:
        """Return numbers for the summary that only the method knows, such as the privacy spent."""
        return {}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        """Return the shared weights and buffers with which a site predicts."""
        return server["w"], server["buffers"]
