"""One process and sites that are asked by message: the same run, bit for bit, for every method of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.cases import Case, cases
from rehearsal import Alone, Apart, assert_same, raw, scaled, settled


def spelled(case: Case) -> str:
    """The name under which the settings know a case."""
    if case.algorithm.name == "fedavg":
        return case.objective.name
    return f"{case.algorithm.name}+{case.objective.name}" if case.algorithm.objective is None else case.algorithm.name


@pytest.mark.parametrize("case", [case for case in cases() if not case.algorithm.gathers], ids=str)
def test_one_process_or_many(case: Case, tmp_path: Path) -> None:
    config, scene = settled(spelled(case)), raw(case.kind)
    apart = Apart(config, scene, tmp_path).start().go()
    assert_same(Alone(config, scaled(scene)).go(), apart)
