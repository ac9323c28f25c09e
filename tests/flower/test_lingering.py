"""How long a site stays connected after its own end: until its last answer was taken, and the coordinator is done."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imperfed.flower.processes.child import TAKEN
from imperfed.flower.site import joining
from imperfed.flower.site.joining import GONE, LINGER, UNTAKEN, Ending
from imperfed.flower.site.site_folder import ENDED, NODE_HOME


@dataclass
class Clock:
    """The time that a site sees."""

    now: float = field(default_factory=time.time)

    def time(self) -> float:
        return self.now

    monotonic = time


@dataclass
class Coordinator:
    """A coordinator that is there or not, and counts who asks whether it is."""

    there: bool = True
    asked: int = 0

    def knock(self) -> str:
        self.asked += 1
        return "" if self.there else "Connection refused"


@dataclass
class Waiting:
    """A site that has its results."""

    state: Path
    clock: Clock
    way: Coordinator
    ending: Ending

    def answer_is_taken(self) -> None:
        path = self.state / NODE_HOME / TAKEN
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (self.clock.now, self.clock.now))

    def seconds(self, most: float) -> float:
        """Return after how many seconds the site leaves, looking twice a second; infinity: not within so many."""
        began = self.clock.now
        while self.clock.now - began <= most:
            if self.ending.here():
                return self.clock.now - began
            self.clock.now += 0.5
        return float("inf")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    clock, way = Clock(), Coordinator()
    monkeypatch.setattr(joining, "time", clock)
    ending = Ending(tmp_path, way)  # type: ignore[arg-type]
    waiting = Waiting(tmp_path, clock, way, ending)
    waiting.answer_is_taken()  # an earlier answer, such as the last figures
    clock.now += 5
    mark = tmp_path / "run" / ENDED
    mark.parent.mkdir()
    mark.touch()
    os.utime(mark, (clock.now, clock.now))
    clock.now += 1
    return waiting


def test_it_stays_for_the_others_once_its_answer_is_taken(site: Waiting) -> None:
    site.answer_is_taken()
    assert LINGER - 1 <= site.seconds(600) <= LINGER + 1


def test_it_stays_until_its_answer_is_taken(site: Waiting) -> None:
    assert site.seconds(5 * LINGER) == float("inf")
    site.answer_is_taken()
    assert site.seconds(2 * LINGER) <= LINGER + 1


def test_it_does_not_stay_for_ever(site: Waiting) -> None:
    assert UNTAKEN - 2 <= site.seconds(2 * UNTAKEN) <= UNTAKEN + 1


def test_a_coordinator_that_has_all_answers_ends_it_soon(site: Waiting) -> None:
    site.answer_is_taken()
    assert site.seconds(0.5) == float("inf")
    site.way.there = False
    assert site.seconds(600) <= 1


def test_a_coordinator_that_is_busy_for_a_moment_is_not_gone(site: Waiting) -> None:
    site.way.there = False
    assert site.seconds(0.5) == float("inf")
    site.way.there = True
    assert site.seconds(60) == float("inf")
    site.way.there = False
    assert site.seconds(60) <= GONE * joining.KNOCKS[1]


def test_sites_that_wait_hardly_keep_the_coordinator_busy(site: Waiting) -> None:
    site.answer_is_taken()
    site.seconds(LINGER)
    assert 5 < site.way.asked < 15
