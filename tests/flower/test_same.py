"""One process and sites that are asked by message: the same run, bit for bit, for every method of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from imperfed.core.batch import Tree
from imperfed.core.labels import Candidates, Exact
from imperfed.flower.messages.payload import Payload, pack, size
from imperfed.testing.cases import Case, cases
from tests.support.inspector import assert_nothing_private
from tests.support.rehearsal import Alone, Apart, assert_same, raw, scaled, settled


def spelled(case: Case) -> str:
    """The name under which the settings know a case."""
    if case.algorithm.name == "fedavg":
        return case.objective.name
    return f"{case.algorithm.name}+{case.objective.name}" if case.algorithm.objective is None else case.algorithm.name


@pytest.mark.parametrize("case", [case for case in cases() if not case.algorithm.pools_data], ids=str)
def test_one_process_or_many(case: Case, tmp_path: Path) -> None:
    config, data = settled(spelled(case)), raw(case.kind)
    apart = Apart(config, data, tmp_path).start().go()
    assert_same(Alone(config, scaled(data)).go(), apart)
    assert_nothing_private(apart)


@pytest.mark.parametrize("method", ["mime+cross-entropy", "pfedpll"])
def test_figures_every_other_round(method: str, tmp_path: Path) -> None:
    kind = Exact if "mime" in method else Candidates
    config, data = settled(method, **{"rounds.evaluate_every": 2, "rounds.rounds": 4}), raw(kind)
    apart = Apart(config, data, tmp_path).start().go()
    assert_same(Alone(config, scaled(data)).go(), apart)


LEAKS: dict[str, Callable[[Apart], Tree]] = {
    "inputs": lambda apart: {"extra": torch.cat([torch.zeros(3), apart.holdings[0].x[4]])},
    "labels": lambda apart: {"extra": apart.holdings[0].labels.values},
    "personal": lambda apart: {"extra": apart.site(0)["personal"].clone()},
    "rows/alpha": lambda apart: {"extra": apart.site(0)["rows/alpha"].clone()},
}


@pytest.mark.parametrize("what", LEAKS)
def test_the_inspector_finds_what_must_not_leave_a_site(what: str, tmp_path: Path) -> None:
    apart = Apart(settled("pfedpll"), raw(Candidates), tmp_path).start().go()
    assert_nothing_private(apart)
    message = next(m for way, m in apart.grid.sent if way == "up" and m.metadata.src_node_id == 100)
    message.content = pack(Payload({}, {"up": LEAKS[what](apart)}))
    with pytest.raises(AssertionError, match=what):
        assert_nothing_private(apart)


def test_figures_and_answers_travel_in_one_message(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **{"rounds.participation": 1.0}), raw(Exact), tmp_path).start().go()
    to_site = [m.metadata.message_type for way, m in apart.grid.sent if way == "down" and m.metadata.dst_node_id == 100]
    assert to_site == ["query.hello", "train", "train", "train", "evaluate"]


def test_what_was_sent_is_counted_and_logged(tmp_path: Path) -> None:
    apart = Apart(settled("pfedpll"), raw(Candidates), tmp_path).start().go()
    for k, holding in enumerate(apart.holdings):
        ways = {"down": 0, "up": 0}
        for way, m in apart.grid.sent:
            if 100 + k in (m.metadata.src_node_id, m.metadata.dst_node_id):
                ways[way] += size(m.content)
        assert apart.server.transport.traffic()[holding.name] == ways
        log = (tmp_path / holding.name / "log.txt").read_text().splitlines()
        assert sum(int(re.findall(r"sent (\d+):", line)[0]) for line in log) == ways["up"]
        trained = [line for line in log if "up/w" in line]
        assert re.search(r"round \d: received \d+ bytes, sent \d+: up/w \[72\] float32, up/buffers \[16\]", trained[0])
