"""A rank that has no device to compute on."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from imperfed.core.errors import UsageError
from imperfed.engine.backends.base import Backend
from imperfed.engine.backends.distributed.follower import RankDevice
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.population import Population


@dataclass(frozen=True)
class BrokenPlace(RankDevice):
    """Where rank 1 cannot compute."""

    def device(self) -> torch.device:
        if os.environ["LOCAL_RANK"] == "1":
            raise UsageError("there is no device for this rank")
        return torch.device("cpu")

    def make_backend(self, population: Population, on_duty: int, workers: int) -> Backend:
        return ProcessBackend(population, on_duty, 1)
