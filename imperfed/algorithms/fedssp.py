"""FedSSP: self-supervised pre-training by SimSiam with all sites together, then IML. A rival in the tables of FedPSL
(Dong et al., "Federated partially supervised learning with limited decentralized medical images", IEEE TMI 2023).

Source: FedPSL's paper names the parts (Sec. VII-C), and the part of SimSiam was checked against its authors' code; how
they are put together in a federation is our own.

    symbol         where it lives                                        does it travel
    w, t           server["w"], server["t"], the round                   w down and up
    stage          down["pretraining"], 1 while t < R1, then 0           down
    h, z, p        as in `_simsiam`                                      never
    views          `strong_view`s, from draws["views"]                   never

    rounds 0 .. R1 - 1:  L_SimSiam on two views of every row; the head learns from labels on detached features
    later rounds:        L_IML of the whole network; projector and predictor stay as they are

Either way sites take the run's steps and the server merges by n_k / n, running statistics included.

Departs from the paper in: the head is trained beside the pre-training, without effect on it, so that there is a model
in every round, and goes on from there where the paper begins with a new one; the views are weaker than SimSiam's (no
mirrored images, no colours: see `strong_view`); the learning rate of the run goes on, with its schedule, and does not
start again with the second stage. Projector and predictor travel in all rounds. SimSiam is made for large batches and
networks: with few features or rows do not expect it to help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from imperfed.algorithms._simsiam import Pretraining, staged_loss
from imperfed.algorithms.iml import IML, refuse_unannotated
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep
from imperfed.core.exchange import Exchange, Train
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class FedSSP(Pretraining):
    """For missing labels: rounds of self-supervised pre-training, which need no label, then IML."""

    name: ClassVar[str] = "fedssp"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"pretrain": (10, 2, 5)}
    changes_inputs: ClassVar[bool] = True
    objective: Objective | None = field(default=IML())

    def __post_init__(self) -> None:
        self.check_pretraining()
        refuse_unannotated(self.name, self.objective)

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (*self.looks(round), Train(self.merge, send=self.send))

    def send(self, server: Tree, site: int) -> Tree:
        """Return the stage."""
        return self.stage(server)

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        return staged_loss(objective, step)
