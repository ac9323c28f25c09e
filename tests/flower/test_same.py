"""One process and sites that are asked by message: the same run, bit for bit, for every method of the catalogue."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, SiteSetup
from imperfed.core.labels import Candidates, Exact
from imperfed.core.loading import import_path
from imperfed.core.network import Network
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.flower.messages.payload import Payload, pack, size
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import as_images, differences, world
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


@dataclass(frozen=True)
class Drawing(Algorithm):
    """FedAvg from sites that each add to their answers what they drew before the first round."""

    name: ClassVar[str] = "drawing"

    def init_site(self, site: SiteSetup) -> Tree:
        return {"drawn": torch.rand(site.layout.shared)}

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"w": done.net.w[: len(done.down["w"])] + done.memory["drawn"]}, done.memory


def test_a_site_draws_its_first_memory_as_a_simulated_one_does(tmp_path: Path) -> None:
    config, data = settled(f"{import_path(Drawing)}+cross-entropy"), raw(Exact)
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
    assert to_site == ["query.hello", "query.ready", "train", "train", "train", "evaluate"]


def test_what_was_sent_is_counted_and_logged(tmp_path: Path) -> None:
    apart = Apart(settled("pfedpll"), raw(Candidates), tmp_path).start().go()
    for k, holding in enumerate(apart.holdings):
        ways = {"down": 0, "up": 0}
        for way, m in apart.grid.sent:
            if 100 + k in (m.metadata.src_node_id, m.metadata.dst_node_id):
                ways[way] += size(m.content)
        assert apart.server.transport.traffic()[holding.name] == ways
        lines = (tmp_path / holding.name / "log.txt").read_text().splitlines()
        log = [line for line in lines if " received " in line]  # without what the run is, which comes first
        assert sum(int(re.findall(r"sent (\d+):", line)[0]) for line in log) == ways["up"]
        trained = [line for line in log if "up/w" in line]
        assert re.search(r"round \d: received \d+ bytes, sent \d+: up/w \[72\] float32, up/buffers \[16\]", trained[0])


def flattening(shape: tuple[int, ...], classes: int) -> Network:
    """A small network over images, of a kind that is trained site by site in one process as well."""
    inputs = math.prod(shape)
    return Network(nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.BatchNorm1d(8)), nn.Linear(8, classes))


RECIPES: dict[str, dict[str, object]] = {
    "adam": {"local.optimizer": "adam"},
    "adamw and clip": {"local.optimizer": "adamw", "local.weight_decay": 0.1, "local.clip": 0.2},
    "cosine": {"local.schedule": "cosine", "local.warmup": 1},
    "step": {"local.schedule": "step", "local.decay_every": 1, "local.decay": 0.5},
    "augment": {"local.augment": "crop,flip", "model.name": "tests.flower.test_same:flattening"},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_real_sites_follow_the_same_recipe(recipe: str, tmp_path: Path) -> None:
    """A site knows the rate of a round from the settings and the round's number, and draws its own augmentation."""
    federation, oracle = as_images(world(Exact)) if recipe == "augment" else world(Exact)
    data = FederatedData(federation, oracle, {}, Scale.none())
    config, model = settled("fedavg", **RECIPES[recipe]), RECIPES[recipe].get("model.name")
    usual = settled("fedavg", **({"model.name": model} if model else {}))
    apart = Apart(config, data, tmp_path, scales=False).start().go()
    alone = Alone(config, data).go()
    assert_same(alone, apart)
    assert not torch.equal(alone.engine.state.server["w"], Alone(usual, data).go().engine.state.server["w"])


def test_a_restarted_coordinator_continues_the_schedule(tmp_path: Path) -> None:
    config, data = settled("fedavg", **RECIPES["cosine"]), raw(Exact)
    Apart(config, data, tmp_path).start().go(rounds=2)
    rest = Apart(config, data, tmp_path).start().go()
    assert [report.round for report in rest.reports] == [2]
    assert not differences(Alone(config, scaled(data)).go().engine.state.server, rest.engine.state.server)
