"""Real sites count their own values over a grid, and the coordinator learns bins from the counts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from imperfed.core.errors import QuorumError
from imperfed.core.labels import Candidates, Exact, Labels
from imperfed.data.bins import CELLS, count_cells
from imperfed.data.site_description import SiteInfo
from imperfed.engine.failures import Failure
from imperfed.flower.coordinator.remote_bins import checked
from imperfed.flower.messages.payload import Payload
from imperfed.testing.toy import differences
from tests.support.inspector import assert_nothing_private
from tests.support.rehearsal import AT_ONCE, Alone, Apart, assert_same, raw, scaled, settled

PLE = {"model.name": "mlp-ple", "model.bins": 4, "model.hidden": 8}


@pytest.mark.parametrize("method", ["fedper+cross-entropy", "local-only+proden", "pfedpll"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_one_process_or_many(method: str, validation: float, tmp_path: Path) -> None:
    kind: type[Labels] = Exact if "cross" in method else Candidates
    config, data = settled(method, **PLE, **{"split.validation": validation}), raw(kind)
    apart = Apart(config, data, tmp_path).start().go()
    alone = Alone(config, scaled(data)).go()
    assert_same(alone, apart)
    assert_nothing_private(apart)
    edges = alone.experiment.data.scale.edges
    assert edges.shape == (6, 5)
    assert torch.equal(edges, apart.experiment.data.scale.edges)


def test_only_a_model_with_bins_asks_for_counts(tmp_path: Path) -> None:
    for name, settings, asked in (("ple", PLE, 1), ("mlp", {"model.name": "mlp"}, 0)):
        apart = Apart(settled("fedavg", **settings), raw(Exact), tmp_path / name).start().go()
        to_site = [m.metadata for way, m in apart.grid.sent if way == "down" and m.metadata.dst_node_id == 100]
        assert [one.message_type for one in to_site].count("query.count") == asked


def test_a_restarted_coordinator_keeps_the_bins_with_which_the_run_began(tmp_path: Path) -> None:
    config, data = settled("fedavg", **PLE), raw(Exact)
    Apart(config, data, tmp_path).start().go(rounds=2)
    rest = Apart(config, data, tmp_path).start().go()
    assert not any(m.metadata.message_type == "query.count" for _, m in rest.grid.sent)
    assert not differences(Alone(config, scaled(data)).go().engine.state.server, rest.engine.state.server)


def test_counts_of_fewer_than_ten_rows_are_not_sent(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **PLE), raw(Exact), tmp_path, scales=False)
    few = apart.holdings[0]
    apart.holdings[0] = replace(few, x=few.x[:9], labels=few.labels.between(0, 9), ids=few.ids[:9])
    apart.grid.nodes[100] = apart.node(apart.holdings[0])
    with pytest.raises(QuorumError, match="site0 did not connect"):
        apart.start(replace(AT_ONCE, gather=0.1))
    assert "site0 has 9 rows; sums of fewer than 10 say too much" in (tmp_path / "run" / "messages.txt").read_text()


def claim(counts: Tensor | None) -> Tensor | Failure:
    info = SiteInfo("north", 3, "exact", ("a", "b"), (2,), 0, -1, False, {}, {})
    return checked(Payload({}, {} if counts is None else {"counts": {"cells": counts}}), info)


def test_counts_are_only_a_claim() -> None:
    true = count_cells(torch.zeros(3, 2))
    assert torch.equal(claim(true), true)
    negative = true.clone()
    negative[0, :2] = torch.tensor([1, -1])
    for wrong in (None, true[:1], true.long(), true.float(), torch.zeros(2, CELLS, 2, dtype=torch.int32)):
        answer = claim(wrong)
        assert isinstance(answer, Failure)
        assert "expected counts of shape (2, 129), int32" in answer.reason
    for wrong in (2 * true, negative):
        answer = claim(wrong)
        assert isinstance(answer, Failure)
        assert "not those of 3 rows" in answer.reason
