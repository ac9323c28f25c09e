"""FedMatch+ (Dong et al., "Federated partially supervised learning with limited decentralized medical images", IEEE TMI
2023): FedMatch whose features are pre-trained as in FedSSP.

Source: FedPSL's paper names the parts (Sec. VII-C); how they are put together is our own.

    symbol           where it lives                                        does it travel
    sigma, psi       as in `fedmatch`                                      as there
    h, z, p          as in `_simsiam`                                      as there
    stage            down["pretraining"], 1 while t < R1, then 0           down

    rounds 0 .. R1 - 1:  theta moves along L_SimSiam + lambda_s L_IML of the head on detached features; psi stays
    later rounds:        the two steps of FedMatch

Departs from the paper in: as `fedmatch` and `fedssp`. A step costs both kinds of forward passes in either stage, since
it must be the same program in all rounds. Steps are plain SGD throughout, and SimSiam needs a larger `local.lr` than
FedMatch, which multiplies it by lambda_s: 0.01 is a start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.algorithms._simsiam import Pretraining, staged_loss
from imperfed.algorithms.fedmatch import FedMatch
from imperfed.algorithms.iml import IML
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep
from imperfed.core.exchange import Exchange
from imperfed.core.objective import Objective
from imperfed.core.rates import descend


@dataclass(frozen=True)
class FedMatchPlus(Pretraining, FedMatch):
    """For missing labels: rounds of self-supervised pre-training, which need no label, then FedMatch."""

    name: ClassVar[str] = "fedmatch-plus"
    objective: Objective | None = field(default=IML())

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_pretraining()

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (*self.looks(round), *super().exchanges(round))

    def send(self, server: Tree, site: int) -> Tree:
        return super().send(server, site) | self.stage(server)

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        pretraining, w, psi = step.down["pretraining"] > 0, step.w.clone(), step.opt_state["psi"].clone()
        first_loss, out = staged_loss(objective, step, self.lambda_s)
        pretrained = descend(w, self.gradient(first_loss, step), step.lr)
        loss, _ = super().local_step(objective, step)
        step.w.copy_(torch.where(pretraining, pretrained, step.w))
        step.opt_state["psi"].copy_(torch.where(pretraining, psi, step.opt_state["psi"]))
        return torch.where(pretraining, first_loss.detach(), loss), out
