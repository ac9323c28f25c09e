"""`auto` with real sites: the search, the choice and the models of one process, from figures alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Message

from imperfed.alone import alone_models
from imperfed.core.errors import QuorumError, UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.evaluation import paired
from imperfed.experiments import experiment
from imperfed.experiments.auto import run as auto_run
from imperfed.experiments.auto import search as auto_search
from imperfed.experiments.auto import work
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.flower.coordinator.auto_run import AutoRun
from imperfed.flower.coordinator.serving import searched_settings
from imperfed.flower.messages.payload import ASKED, Payload, pack, unpack
from imperfed.flower.site import site_results
from imperfed.results.auto_summary import AutoSummary
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary
from imperfed.testing.toy import differences
from tests.experiments.auto.conftest import federation
from tests.support.inspector import CARD, FIGURES, assert_nothing_private
from tests.support.rehearsal import Apart

SITES = ("s0", "s1")
SAID = {
    "query.hello": CARD,
    "query.count": set(),
    "train": FIGURES,
    "evaluate": FIGURES,
    "query.apply": {"done"},
    "query.agree": {"agreement"},
    "query.calibrate": {"likelihood"},
    "query.alone": {"likelihood"},
    "query.mix": {"likelihood"},
    "query.settle": {"family", "weight", "score", "difference", "rows", "likelihood"},
    "query.keep": {"done"},
    "query.judge": {"metrics", "values", "counts", "alone", "difference", "rows"},
    "query.ready": {"done"},
    "query.leave": {"done"},
}
"""The words that a site may say, by the kind of message."""


def asked(**more: Any) -> AutoRequest:
    words = {"method": "auto", "rounds": 4, "workers": 1, "device": "cpu", "data": "toy"} | more
    request = AutoRequest.of(None, words)
    assert request is not None
    return request


def toy(kind: str, rows: int = 40) -> FederatedData:
    """Two sites with test rows of their own."""
    whole = federation(kind, sites=4, rows=rows)
    cut = 2 * rows
    own = replace(
        whole,
        x=whole.x[:cut],
        labels=whole.labels.between(0, cut),
        starts=(0, rows, cut),
        sites=SITES,
        ids=whole.ids[:cut],
    )
    x = tuple(whole.x[cut + k * rows : cut + (k + 1) * rows] for k in range(2))
    y = tuple(part.argmax(1) if kind != "annotated" else (part > 1).to(whole.labels.values.dtype) for part in x)
    facts = {"labels": kind, "rows": [rows, rows], "test_rows": [rows, rows]}
    facts |= dict.fromkeys(("common_test_rows", "rows_left_out", "public_rows"), 0)
    return FederatedData(own, Oracle(None, x, y), facts, Scale.none())


@pytest.fixture(autouse=True, scope="module")
def _few() -> Iterator[None]:
    """A search of seconds: four trials, small models alone, few bootstrap samples, no pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paired, "DRAWS", 20)
        patch.setattr(work, "MOST", 4)
        patch.setattr(work, "RUNGS", (1, 3, 9))
        patch.setattr(auto_search, "contradictory", lambda *_: True)  # sets go all the way through a consensus
        patch.setattr(alone_models()["forest"], "grid", classmethod(lambda cls, *_: (cls(trees=5),)))
        patch.setattr(alone_models()["boosting"], "grid", classmethod(lambda cls, *_: (cls(rounds=3),)))
        for room in (experiment, site_results):
            patch.setattr(room, "write_report", lambda folder: folder.write("report.html", ""))
        yield


class Served:
    """A search with real sites, in which every message passes through `look`."""

    def __init__(self, path: Path, data: FederatedData, request: AutoRequest) -> None:
        self.request = request
        self.apart = Apart(searched_settings(request), data, path, scales=False)

    def run(self, watch: Watch | None = None) -> Summary:
        self.coordinator = self.apart.coordinator()
        self.coordinator.folder.write("config.toml", self.request.base.toml())
        return AutoRun(self.coordinator, self.request).run(watch or Watch())

    def look(self, look: Callable[[Message, Message], Message | None], node: int = 100) -> None:
        """Let a function see and change the replies of a site."""
        self.apart.grid.nodes[node].mishap = lambda message, answer: look(message, answer(message))

    def trials_at(self, site: str) -> set[str]:
        """The trials whose states a site holds."""
        return {path.name for path in (self.apart.folder / site / "run" / "trials").glob("*")}

    def sent(self, way: str) -> list[Message]:
        return [message for sent, message in self.apart.grid.sent if sent == way]


@dataclass
class Both:
    """The same search in one process and with real sites."""

    here: RunFolder
    summary: Summary
    served: Served
    there: Summary
    states: list[tuple[str, set[str]]]
    """The kind of every message to the first site, and the trials whose states it held afterwards."""

    def own(self, site: str) -> RunFolder:
        """What a real site has of the run."""
        return RunFolder(self.served.apart.folder / site / "run")


@pytest.fixture(scope="module", params=["exact", "candidates", "annotated"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _few: None) -> Both:
    path, data = tmp_path_factory.mktemp("auto"), toy(request.param)
    here, summary = auto_run.start(asked(), path / "here", Watch(), data)
    served, states = Served(path, data, asked()), list[tuple[str, set[str]]]()

    def look(message: Message, reply: Message) -> Message:
        states.append((message.metadata.message_type, served.trials_at("s0")))
        return reply

    served.look(look)
    return Both(here, summary, served, served.run(), states)


def test_the_choice_is_that_of_one_process(both: Both) -> None:
    here, there = both.summary.auto, both.there.auto
    assert here is not None
    assert there is not None
    assert_same_choice(there, here)
    assert len(here.trials) == 4
    assert here.consensus == there.consensus == (both.summary.facts.labels == "candidates")
    assert there.sites == here.sites
    assert here.gain is not None
    assert there.gain is not None
    assert there.gain.rows == "test rows"
    assert (there.gain.delivered, there.gain.alone, there.gain.n) == (here.gain.delivered, here.gain.alone, here.gain.n)
    assert there.gain.low <= there.gain.delivered - there.gain.alone <= there.gain.high
    assert both.there.personal == both.summary.personal


def assert_same_choice(one: AutoSummary, other: AutoSummary) -> None:
    for part in ("method", "model", "settings", "rounds", "temperature", "mixture_temperature", "trials", "rungs"):
        assert getattr(one, part) == getattr(other, part), part
    assert [(s.weight, s.alone, s.settings) for s in one.sites] == [
        (s.weight, s.alone, s.settings) for s in other.sites
    ]


def test_every_site_has_the_models_of_one_process(both: Both) -> None:
    for site in SITES:
        own = both.own(site)
        for file in (f"models/{site}.safetensors", f"alone/{site}.safetensors"):
            name = file if (both.here.path / file).exists() else "models/global.safetensors"
            assert not differences(own.load_tensors(own.path / file), both.here.load_tensors(both.here.path / name))
        labels = f"labels/{site}.parquet"
        assert (own.path / labels).exists() == (both.here.path / labels).exists()
        if (own.path / labels).exists():
            assert (own.path / labels).read_bytes() == (both.here.path / labels).read_bytes()


def test_a_site_has_its_own_summary_and_nothing_of_the_search(both: Both) -> None:
    for k, site in enumerate(SITES):
        own = both.own(site)
        summary = own.summary()
        assert summary is not None
        assert summary.auto is not None
        assert [one.site for one in summary.auto.sites] == [site]
        assert summary.auto.gain is not None
        assert summary.auto.gain.n == 40
        assert summary.sites[0].value == both.summary.sites[k].value
        assert not list(own.path.glob("search-*"))
    folder = both.served.coordinator.folder.path
    assert not any((folder / name).exists() for name in ("alone", "labels", "checkpoints/search"))
    assert json.loads((folder / "trials.json").read_text())["method"] == both.summary.auto.method  # type: ignore[union-attr]


def test_states_of_dropped_trials_are_removed(both: Both) -> None:
    held = [len(trials) for kind, trials in both.states if kind in ("train", "evaluate")]
    assert max(held) == 4
    assert dict(both.states)["query.calibrate"] == dict(both.states)["query.settle"]
    assert len(dict(both.states)["query.settle"]) == 2
    assert held[-1] == 0


def test_nothing_but_figures_and_weights_leaves_a_site(both: Both) -> None:
    apart, backend = both.served.apart, both.served.coordinator.backend
    apart.server, population = both.served.coordinator, backend.population
    apart.engine = SimpleNamespace(state=population.state, backend=backend, population=population)  # type: ignore[assignment]
    assert_nothing_private(apart)
    for message in both.served.sent("up"):
        payload, kind = unpack(message.content), message.metadata.message_type
        assert payload.words.keys() <= SAID[kind] | {ASKED}
        if kind not in ("train", "query.hello", "query.count"):
            assert not any(payload.trees.values()), kind
        assert len(payload.words.get("likelihood", [])) in (0, 1, 5, 12)  # type: ignore[arg-type]


def test_no_test_row_is_looked_at_before_the_choice(both: Both) -> None:
    begun = False
    for way, message in both.served.apart.grid.sent:
        words = unpack(message.content).words
        begun = begun or (way == "down" and "trial" not in words and message.metadata.message_type == "train")
        assert begun or not words.get("metrics")
    assert begun


def test_a_search_that_was_stopped_goes_on(tmp_path: Path) -> None:
    data, calls = toy("exact"), list[str]()

    def stop() -> bool:
        return len(calls) > 4

    served = Served(tmp_path, data, asked())
    with pytest.raises(Interrupted, match="imperfed resume"):
        served.run(Watch(search=lambda doing, share: calls.append(doing), stop=stop))
    before = trained(served)
    again = served.run()
    whole = Served(tmp_path / "whole", data, asked())
    uninterrupted = whole.run()
    assert again.auto is not None
    assert uninterrupted.auto is not None
    assert again.auto == uninterrupted.auto
    assert 0 < before < trained(served) == trained(whole)


def trained(served: Served) -> int:
    """How many messages asked the first site to train."""
    return sum(m.metadata.message_type == "train" and m.metadata.dst_node_id == 100 for m in served.sent("down"))


@pytest.mark.parametrize(
    ("kind", "words", "complaint"),
    [
        ("query.calibrate", {"likelihood": [0.0] * 5}, "its likelihood is not 12 finite numbers"),
        ("query.alone", {"likelihood": [float("nan")]}, "its likelihood is not 1 finite numbers"),
        ("query.mix", {"likelihood": [-1e9] * 5}, "log-likelihoods of 8 labels cannot add up to -1e"),
        ("query.mix", {"likelihood": [1.0] * 5}, "cannot add up to 1"),
        ("query.settle", {"weight": 7}, "weight = 7 is none of the 5 options"),
        ("query.settle", {"family": -1}, "family = -1 is none of the [0-9]+ options"),
        ("query.settle", {"score": 1.5}, "score = 1.5 cannot be"),
        (
            "query.settle",
            {"difference": [0.5, 0.4, 0.2, 0.1]},
            "a difference of 0.5, 0.4, 0.2, 0.1 on 8 rows cannot be",
        ),
        ("query.settle", {"rows": 9}, "on 9 rows cannot be"),
    ],
)
def test_what_a_site_claims_is_checked(kind: str, words: dict[str, Any], complaint: str, search: Served) -> None:
    def lie(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != kind:
            return reply
        payload = unpack(reply.content)
        return Message(pack(Payload({**payload.words, **words}, payload.trees)), reply_to=message)

    search.look(lie, node=101)
    with pytest.raises(QuorumError, match=rf"every site must answer. s1: its answer was refused: .*{complaint}"):
        search.run()


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory, _few: None) -> Served:
    """A search whose trials are done and kept, so that only the choice has to be made again."""
    return Served(tmp_path_factory.mktemp("lies"), toy("exact"), asked(rounds=1))


def test_a_lie_at_the_end_costs_a_site_its_figures_only(tmp_path: Path) -> None:
    served = Served(tmp_path, toy("exact"), asked(rounds=1))

    def lie(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "query.judge":
            return reply
        return Message(pack(Payload({**unpack(reply.content).words, "alone": 2.0})), reply_to=message)

    served.look(lie)
    summary = served.run()
    assert (
        "s0 did not tell the figures of its mixture: its answer was refused: alone = 2 cannot be"
        in (served.coordinator.folder.path / "log.txt").read_text()
    )
    assert summary.auto is not None
    assert [site.value is None for site in summary.auto.sites] == [True, False]
    assert summary.auto.gain is not None
    assert summary.auto.gain.n == 40


def test_a_site_that_leaves_ends_the_search_for_now(tmp_path: Path) -> None:
    served, trains = Served(tmp_path, toy("exact"), asked(quorum=1.0)), list[int]()

    def leave(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == "train":
            trains.append(1)
        if len(trains) < 5:
            return reply
        served.apart.grid.nodes[100].online = False
        return None

    served.look(leave)
    with pytest.raises(QuorumError, match="s0: it did not answer within"):
        served.run()
    node = served.apart.grid.nodes[100]
    node.online, node.mishap = True, None
    summary = served.run()
    assert summary.auto is not None
    assert not any(trial.failure for trial in summary.auto.trials)


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(UsageError, match="auto with real sites does not repair labels; name a method beside posterior"):
        searched_settings(asked(repair="posterior"))
