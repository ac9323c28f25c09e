"""A round as lines of the log."""

from __future__ import annotations

from imperfed.engine.failures import Crashed
from imperfed.engine.schedule import RoundReport
from imperfed.results.metrics import log_lines


def test_the_log_names_who_failed_and_why() -> None:
    report = RoundReport(4, (0, 2), {0: 0.5}, {2: Crashed("out of memory")}, notes=["a note"])
    assert log_lines(report, ("north", "east", "south")) == [
        "round 5: 1 of 2 sites answered, loss 0.5000",
        "round 5: south failed: out of memory",
        "round 5: a note",
    ]
