"""How the caller of a run watches it and stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from imperfed.core.errors import ImperfedError
from imperfed.data.federate import FederatedData
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config


@dataclass
class Watch:
    """Hooks of a run: called before data are prepared, at its beginning, after every round, and to ask for a stop.

    `search` takes what the search before a run is doing, and the share of its work that is done.
    `stop` interrupts a run, which can be resumed; `end` makes the round its last one, with results.
    """

    prepare: Callable[[Config], None] = lambda config: None
    begin: Callable[[Config, FederatedData, int], None] = lambda config, data, round: None
    round: Callable[[RoundReport, float], None] = lambda report, seconds: None
    search: Callable[[str, float], None] = lambda doing, share: None
    stop: Callable[[], bool] = lambda: False
    end: Callable[[], bool] = lambda: False


class Interrupted(ImperfedError):
    """A run was asked to stop; the message says how to continue from its checkpoint."""

    exit_code = 130
