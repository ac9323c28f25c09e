"""One site may answer anything: it is named, it costs no one else anything, and the run ends with results."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Message
from rich.console import Console

from imperfed.core.errors import DataError, QuorumError
from imperfed.core.foreign_text import LONGEST
from imperfed.core.labels import Annotated, Exact
from imperfed.data.site_description import check_alike
from imperfed.engine.schedule import RoundReport
from imperfed.engine.validate import REFUSED
from imperfed.experiments.config import Config
from imperfed.experiments.progress import Show
from imperfed.experiments.watch import Watch
from imperfed.flower.coordinator import remote_repair
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.leaving import Leaving
from imperfed.flower.messages.local_grid import Forged
from imperfed.flower.messages.payload import ASKED, REPAIR, Payload, pack, unpack
from imperfed.flower.messages.transport import Transport
from tests.support.hostile import Cached, Change, changes, filled, make_cached
from tests.support.rehearsal import AT_ONCE, Apart, raw, settled

SITE, NODE = "site2", 102
HARMLESS = {
    "values: real", "values: a NaN", "loss: half", "up/w: negative", "up/buffers: negative", "array: more",
    "RecordDict: every name twice", "ArrayRecord: every name twice", "RecordDict: parts twice",
    "array: piece -1", "ArrayRecord: parts twice", "Array: parts twice", "ConfigRecord: parts twice",
    "ConfigRecord: no parts",
}  # fmt: skip
"""Figures, a loss and weights that can be, and other ways to say the same."""
BELIEVED = HARMLESS & {name for name in HARMLESS if name[0] in "ACR" or name.startswith("array")} | {
    "annotated/classes: NaN", "annotated/classes: huge", "annotated/classes: infinite", "annotated/classes: negative",
    "digest: empty text", "features: zero", "held out: zero", "several: large", "several: minus one",
    "several: very negative", "sums/mistakes: a scalar", "sums/square: huge", "sums/sum: negative", "tests: zero",
}  # fmt: skip
"""What a site may say of itself."""
NEVER_LOST = replace(AT_ONCE, answer=60.0)


def everybody(method: str = "fedavg", **more: object) -> Config:
    return settled(method, **{"rounds.participation": 1.0, "rounds.quorum": 0.5} | more)


def all_changes(config: Config, folder: Path, kind: str, count: int) -> dict[str, Change]:
    """Return all that can be changed in a site's answer to the first message of a kind that asks for figures."""
    apart = Apart(config, raw(Exact), folder)
    cached = make_cached(apart.grid)
    apart.start().go(rounds=2)
    kept = next(p for (k, (_, evaluate, _)), p in cached[NODE].answers.items() if k == kind and evaluate in (1, None))
    return changes(Message(pack(replace(kept, words={**kept.words, ASKED: ""})), 1, kind), count)


def hostile(listed: Sequence[Change], kind: str) -> Cached:
    """A site that changes each answer of a kind in the next way."""
    waiting = iter(listed)

    def next_one(reply: Message) -> Message | Forged:
        return next(waiting, lambda one: one)(reply)

    def asks(message: Message) -> bool:
        return message.metadata.message_type == kind and unpack(message.content).words.get("evaluate", 1) == 1

    return Cached(next_one, asks)


def watched(reports: list[RoundReport], printed: Path) -> Watch:
    """Show a run as `serve` does, and keep the reports of its rounds."""
    watch = Show(Console(file=printed.open("w", encoding="utf-8"))).watch()

    def note(report: RoundReport, seconds: float) -> None:
        reports.append(report)
        watch.round(report, seconds)

    return replace(watch, round=note)


def test_whatever_a_site_answers_the_others_go_on(tmp_path: Path) -> None:
    wrong = all_changes(everybody(), tmp_path / "first", "train", 150)
    config = everybody(**{"rounds.rounds": len(wrong) + 1})
    apart = Apart(config, raw(Exact), tmp_path / "second")
    make_cached(apart.grid)
    apart.grid.nodes[NODE].mishap = hostile(list(wrong.values()), "train")
    server, reports = apart.coordinator(NEVER_LOST), list[RoundReport]()
    server.folder.write("config.toml", server.config.toml())
    summary = server.run(watched(reports, tmp_path / "printed"))
    assert len(reports) == len(wrong) + 1 > 300
    accepted = set()
    for name, report, before in zip(wrong, reports[1:], reports, strict=False):
        # The figures after a round come with the answers of the next one.
        assert report.failures.keys() <= {2}, name
        assert before.personal.keys() >= {0, 1, 3}, name
        if failure := report.failures.get(2):
            assert failure.reason.startswith(REFUSED), name
            assert len(failure.reason) < LONGEST + 100, name
            assert failure.reason.isprintable(), name
        elif 2 in before.personal:
            accepted.add(name)
    assert {name for name in accepted if not name.startswith("bytes")} == HARMLESS
    assert sum(name.startswith("bytes") for name in accepted) < 40  # of salt, and the last bits of weights
    told = (server.folder.path / "messages.txt").read_text(encoding="utf-8")
    assert "site2: its metrics were refused: its metrics are called " in told
    assert (server.folder.path / "report.html").exists()
    assert [site.value is not None for site in summary.sites] == [True] * 4


def met(folder: Path) -> tuple[Transport, Payload]:
    """Return a transport that has admitted all sites, and what the hostile one has said of itself so far."""
    apart = Apart(everybody(), raw(Annotated), folder)
    cached = make_cached(apart.grid)
    transport = apart.coordinator(NEVER_LOST).transport
    transport.look()
    ((_, card),) = cached[NODE].answers.items()
    return transport, card


def gathered(server: Coordinator) -> str:
    """Let a coordinator gather its sites, and make of what they say what it makes of it; return why that failed."""
    try:
        infos = server.transport.gather()
        check_alike(infos, server.central.classes)
        sites = GatheredSites(server.transport, server.central, tuple(infos), "run", "")
        sites.data()
        sites.told(server.config)
    except (DataError, QuorumError) as error:
        return str(error)
    return ""


def test_whatever_a_site_says_of_itself_the_others_are_admitted(tmp_path: Path) -> None:
    """A card that cannot be is that site's: it is not admitted, or the run ends before it has begun, with its name."""
    (others, card), admitted = met(tmp_path / "first"), set[str]()
    wrong = changes(Message(pack(replace(card, words={**card.words, ASKED: ""})), 1, "query.hello"), 60)
    assert len(wrong) > 300
    for name, change in wrong.items():
        apart = Apart(everybody(), raw(Annotated), tmp_path / "second")
        apart.grid.nodes[NODE].mishap = Cached(change, answers={("query.hello", (None, None, None)): card})
        server = apart.coordinator(replace(AT_ONCE, gather=0.001))
        server.transport.nodes = {site: node for site, node in others.nodes.items() if site != SITE}
        server.transport.infos = {site: info for site, info in others.infos.items() if site != SITE}
        if why := gathered(server):
            assert why.startswith(SITE), name
            assert why.isprintable(), name
            assert len(why) < 2 * LONGEST + 200, name
        else:
            admitted.add(name)
        assert server.transport.nodes.keys() >= {"site0", "site1", "site3"}, name
        told = (server.folder.path / "messages.txt").read_text(encoding="utf-8")
        assert SITE in server.transport.nodes or f"node {NODE} is not admitted: " in told, name
        shutil.rmtree(server.folder.path)
    assert {name for name in admitted if not name.startswith("bytes")} == BELIEVED


def honest(apart: Apart, kind: str) -> Message:
    """Return the last answer of the site that will be hostile to a kind of message, as long as it is not."""
    cached = apart.grid.nodes[NODE].mishap
    assert isinstance(cached, Cached)
    kept = next(payload for (own, _), payload in reversed(cached.answers.items()) if own == kind)
    return Message(pack(replace(kept, words={**kept.words, ASKED: ""})), 1, kind)


def test_whatever_a_site_answers_at_the_end_the_others_have_their_figures(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Exact), tmp_path)
    cached = make_cached(apart.grid)
    apart.start(NEVER_LOST).go()
    backend = apart.engine.backend
    before = backend.evaluate(False)[0]
    for name, change in changes(honest(apart, "evaluate"), 30).items():
        cached[NODE].change = change
        told = backend.evaluate(False)[0]
        assert told.keys() >= {0, 1, 3}, name
        assert all(str(told[k]) == str(before[k]) for k in (0, 1, 3)), name
        if 2 in told:
            assert told[2].keys() == before[2].keys(), name
            assert all(n == apart.holdings[2].info().tests for _, n in told[2].values()), name


def test_whatever_a_site_answers_when_it_is_let_go_the_others_have_left(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Exact), tmp_path)
    cached = make_cached(apart.grid)
    apart.start(NEVER_LOST)
    folder, names = apart.server.folder, apart.server.sites
    folder.checkpoint.parent.mkdir(exist_ok=True)

    def left() -> dict[str, str]:
        payloads = apart.engine.backend.with_models(lambda k: {})
        return Leaving.write(folder, names, payloads).finish(apart.server.transport, 0.0)

    assert left() == {}
    for name, change in changes(honest(apart, "query.leave"), 0).items():
        cached[NODE].change = change
        assert left().keys() <= {SITE}, name


def repairing(folder: Path) -> Apart:
    return Apart(everybody(**{"repair": "posterior", "repair.features": "raw"}), raw(Exact), folder)


def test_a_repair_names_the_site_whose_numbers_are_out_of_all_reason(tmp_path: Path) -> None:
    apart = repairing(tmp_path)

    def much(reply: Message) -> Message:
        payload = unpack(reply.content)
        up = {name: filled(t, 1e31) if t.is_floating_point() else t for name, t in payload.trees["up"].items()}
        reply.content = pack(replace(payload, trees={"up": up}))
        return reply

    def asks(message: Message) -> bool:
        return (words := unpack(message.content).words).get("exchange") == 0 and words.get("round") == REPAIR

    apart.grid.nodes[NODE].mishap = Cached(much, asks)
    with pytest.raises(
        QuorumError, match=r"every site. site2: its answer was refused: '.*' holds numbers beyond 1e\+30"
    ):
        apart.start(NEVER_LOST)


@pytest.mark.parametrize(
    ("first", "value", "why"),
    [
        (0, -1e12, "'sum x^2' is less than the square of 'sum x' allows"),
        (0, 1e29, "'sum x^2' is less than the square of 'sum x' allows"),
        (1, 1e29, "'sum z z^T' has squares that add up to 1e+29"),
        (2, -1e12, "'sum a a^T' is over -1e+12 rows, of 31"),
    ],
)
def test_a_repair_names_the_site_of_whose_numbers_nothing_can_be_made(
    first: int, value: float, why: str, tmp_path: Path
) -> None:
    """Each number is possible, all of them are not."""
    apart = repairing(tmp_path)

    def useless(reply: Message) -> Message:
        payload = unpack(reply.content)
        up = {name: filled(t, value) if t.is_floating_point() else t for name, t in payload.trees["up"].items()}
        reply.content = pack(replace(payload, trees={"up": up}))
        return reply

    def asks(message: Message) -> bool:
        return (words := unpack(message.content).words).get("round") == REPAIR and int(words["exchange"]) >= first

    apart.grid.nodes[NODE].mishap = Cached(useless, asks)
    with pytest.raises(QuorumError, match=rf"every site. site2: its answer was refused: {re.escape(why)}"):
        apart.start(NEVER_LOST)


def test_a_repair_of_whose_numbers_nothing_can_be_made_ends_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*words: object) -> None:
        torch.linalg.cholesky(-torch.eye(2))

    monkeypatch.setattr(remote_repair, "conduct", fails)
    with pytest.raises(QuorumError, match=r"nothing can be made of what the sites sent for repair posterior \(linalg"):
        repairing(tmp_path).start(NEVER_LOST)
