"""A method under which, from the second round on, one site crashes and another answers with what is no number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, SiteSetup
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class Failing(FedAvg):
    """FedAvg whose sites count the rounds in which they answered; after the first, site 1 crashes and 2 sends NaN."""

    name: ClassVar[str] = "failing"

    def init_site(self, site: SiteSetup) -> Tree:
        return {"site": torch.tensor(float(site.index)), "rounds": torch.zeros(())}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        site, again = int(step.memory["site"]), bool(step.memory["rounds"] == 1)
        if again and site == 1:
            raise RuntimeError("the disk is full")
        if again and site == 2:
            step.w[0] = torch.nan
        return super().local_step(objective, step)

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {}, done.memory | {"rounds": done.memory["rounds"] + 1}
