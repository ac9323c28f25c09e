"""A method under which a rank is killed in the middle of a run, as by the kernel when memory runs out."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import ClassVar

from imperfed.algorithms.scaffold import Scaffold
from imperfed.core.exchange import Exchange

VICTIM = "IMPERFED_TEST_VICTIM"
"""The variable that names the rank."""
LAST = 4
"""The round, counted from 1, in which it dies."""


@dataclass(frozen=True)
class Dying(Scaffold):
    """SCAFFOLD, whose sites remember something, until rank 1 is killed."""

    name: ClassVar[str] = "dying"

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        if round == LAST - 1 and os.environ.get("RANK") == os.environ.get(VICTIM, "none"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().exchanges(round)
