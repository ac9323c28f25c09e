"""What happens to a message: it is lost, late, broken or wrong. The run goes on, and no state is lost or made twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Error, Message

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError, DivergedError, QuorumError
from imperfed.core.labels import Candidates, Exact
from imperfed.data.site_files import SiteFiles
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.failures import Away, Crashed, Failure, Misshapen, NotFinite, Silent
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.flower.messages.local_grid import Node
from imperfed.flower.messages.payload import ASKED, FAILED, Payload, pack, unpack
from imperfed.flower.messages.transport import Timeouts
from tests.support.rehearsal import AT_ONCE, Alone, Apart, assert_same, raw, scaled, settled

Answer = Callable[[Message], Message]
ROUND, SITE = 1, 2
"""Who fails, and when: site 2 is on duty in round 1."""


def everybody(method: str = "pfedpll", **more: Any) -> Config:
    return settled(method, **{"rounds.participation": 1.0, "model": "tests.support.rehearsal:normalised"} | more)


class Failing(ProcessBackend):
    """One process, in which one site gives no answer in one round."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        there = [k for k in sites if (round, k) != (ROUND, SITE)]
        return super().ask(round, number, there) | {k: Failure("") for k in sites if k not in there}


@pytest.fixture(scope="module")
def without() -> Alone:
    """The run in one process in which site 2 fails in round 1."""
    alone = Alone(everybody(), scaled(raw(Candidates)))
    alone.experiment = Experiment(alone.config, alone.scene, Failing)
    alone.engine = alone.experiment.engine
    return alone.go()


@pytest.fixture(scope="module")
def uninterrupted() -> Alone:
    return Alone(everybody(), scaled(raw(Candidates))).go()


def changed(reply: Message, change: Callable[[Payload], Payload], message: Message) -> Message:
    payload = unpack(reply.content)
    after = change(payload)
    return Message(pack(replace(after, words={ASKED: payload.words[ASKED], **after.words})), reply_to=message)


def with_w(payload: Payload, w: Callable[[torch.Tensor], torch.Tensor]) -> Payload:
    up = payload.trees["up"]
    return replace(payload, trees={**payload.trees, "up": up | {"w": w(up["w"])}})


def spoiled(w: torch.Tensor) -> torch.Tensor:
    w = w.clone()
    w[3] = torch.nan
    return w


def cut(reply: Message) -> Message:
    """Half of an array's bytes did not arrive."""
    array = reply.content.array_records["up"]["w"]
    array.data = array.data[: len(array.data) // 2]
    return reply


def nameless(payload: Payload) -> Payload:
    return replace(payload, trees={**payload.trees, "up": {"buffers": payload.trees["up"]["buffers"]}})


WAYS: dict[str, tuple[Callable[[Message, Answer], Message | None], type[Failure], str]] = {
    "not finite": (
        lambda m, answer: changed(answer(m), lambda letter: with_w(letter, spoiled), m),
        NotFinite,
        "its answer was refused: 'w' is not finite",
    ),
    "wrong shape": (
        lambda m, answer: changed(answer(m), lambda letter: with_w(letter, lambda w: w[1:]), m),
        Misshapen,
        r"its answer was refused: 'w' has shape \(\d+,\), expected \(\d+,\)",
    ),
    "wrong type": (
        lambda m, answer: changed(answer(m), lambda letter: with_w(letter, torch.Tensor.double), m),
        Misshapen,
        "its answer was refused: 'w' holds torch.float64, expected torch.float32",
    ),
    "missing": (
        lambda m, answer: changed(answer(m), nameless, m),
        Misshapen,
        "its answer was refused: 'w' is missing",
    ),
    "nothing in it": (
        lambda m, answer: changed(answer(m), lambda letter: Payload({"loss": 0.5}), m),
        Misshapen,
        "its answer was refused: it holds no answer",
    ),
    "no number": (
        lambda m, answer: changed(answer(m), lambda letter: replace(letter, words={"loss": "low"}), m),
        Misshapen,
        "its answer was refused: 'loss' should be of type float, found 'low'",
    ),
    "cut short": (lambda m, answer: cut(answer(m)), Misshapen, "its answer was refused: 'up/w' cannot be read"),
    "lost": (lambda m, answer: (answer(m), None)[1], Silent, "it did not answer within 0.05 s"),
    "silent": (lambda m, answer: None, Silent, "it did not answer within 0.05 s"),
    "error": (lambda m, answer: Message(Error(2, "no memory"), reply_to=m), Crashed, "no answer: no memory"),
    "gone": (lambda m, answer: Message(Error(5, "no sign of life"), reply_to=m), Away, "no answer: no sign of life"),
}


def in_round(way: Callable[[Message, Answer], Message | None]) -> Callable[[Message, Answer], Message | None]:
    """Only the message in which the answer of the round is asked for; figures come from elsewhere in these tests."""

    def mishap(message: Message, answer: Answer) -> Message | None:
        words = unpack(message.content).words
        asked = (words.get("round"), words.get("exchange")) == (ROUND, 0)
        return way(message, answer) if asked else answer(message)

    return mishap


def same_but_for_reasons(alone: Alone, apart: Apart, figures: bool = True) -> None:
    """Equal runs; in one process the reasons and perhaps the figures of the failing site are others."""
    for report in (*alone.reports, *apart.reports):
        report.failures = dict.fromkeys(report.failures, Failure(""))
        if not figures:
            report.personal.pop(SITE, None)
    assert_same(alone, apart)


@pytest.mark.parametrize("way", WAYS)
def test_a_site_that_fails_is_named_left_out_and_loses_nothing(way: str, without: Alone, tmp_path: Path) -> None:
    mishap, kind, reason = WAYS[way]
    apart = Apart(without.config, raw(Candidates), tmp_path).start()
    apart.grid.nodes[100 + SITE].mishap = in_round(mishap)
    apart.go()
    ((site, failure),) = apart.reports[ROUND].failures.items()
    assert site == SITE
    assert type(failure) is kind
    assert re.match(reason, failure.reason)
    same_but_for_reasons(without, apart, figures=False)


@pytest.mark.parametrize("way", ["not finite", "lost", "cut short"])
def test_a_site_that_is_asked_again_starts_as_before(way: str, uninterrupted: Alone, tmp_path: Path) -> None:
    config = everybody(**{"rounds.on_failure": "retry"})
    apart = Apart(config, raw(Candidates), tmp_path).start()
    times = []

    def once(message: Message, answer: Answer) -> Message | None:
        times.append(1)
        return WAYS[way][0](message, answer) if len(times) == 1 else answer(message)

    apart.grid.nodes[100 + SITE].mishap = in_round(once)
    apart.go()
    assert len(times) == 2
    for alone_report, report in zip(uninterrupted.reports, apart.reports, strict=True):
        assert not report.failures
        assert report.losses == alone_report.losses
    for k in range(4):
        assert {n: t.tolist() for n, t in uninterrupted.site(k).items()} == {
            n: t.tolist() for n, t in apart.site(k).items()
        }


def test_a_site_that_is_away_comes_back_under_another_number(without: Alone, tmp_path: Path) -> None:
    apart = Apart(without.config, raw(Candidates), tmp_path).start()
    apart.go(rounds=1)
    # The figures after round 0 came with the answers of round 1: this site's answer is dropped as if it had died.
    apart.engine.backend.early[(ROUND, 0)][SITE] = Away("")
    node = apart.grid.nodes.pop(100 + SITE)
    apart.go(rounds=1 + ROUND)
    assert SITE in apart.reports[ROUND].failures
    assert SITE not in apart.reports[ROUND].personal
    apart.grid.nodes[555] = Node(node.app, node.config)
    apart.go()
    assert apart.server.transport.nodes["site2"] == 555
    same_but_for_reasons(without, apart, figures=False)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_coordinator_that_was_killed_goes_on(lost: int, uninterrupted: Alone, tmp_path: Path) -> None:
    """Also where it was killed after a round was merged and before it was saved: then sites are a round ahead."""
    first = Apart(uninterrupted.config, raw(Candidates), tmp_path).start()
    saved = b""
    for round in (1, 2):
        first.go(rounds=round)
        saved = first.server.folder.checkpoint.read_bytes() if round == 2 - lost else saved
    first.server.folder.checkpoint.write_bytes(saved)
    second = Apart(uninterrupted.config, raw(Candidates), tmp_path).start()
    assert second.engine.state.round == 2 - lost
    second.go()
    second.reports = first.reports[: 2 - lost] + second.reports
    assert_same(uninterrupted, second)


def test_a_run_goes_on_without_a_site_that_does_not_come_back(tmp_path: Path, without: Alone) -> None:
    first = Apart(without.config, raw(Candidates), tmp_path).start()
    first.go(rounds=1)
    away = Apart(without.config, raw(Candidates), tmp_path)
    node = away.grid.nodes.pop(100 + SITE)
    away.start(replace(AT_ONCE, back=0.05)).go(rounds=2)
    assert away.reports[0].failures == {SITE: Away("it is not connected")}
    assert "continuing without site2" in (tmp_path / "run" / "messages.txt").read_text()
    away.grid.nodes[555] = node
    away.go()
    away.reports = first.reports + away.reports
    same_but_for_reasons(without, away, figures=False)


def test_a_site_with_other_rows_cannot_go_on(tmp_path: Path) -> None:
    first = Apart(everybody(), raw(Candidates), tmp_path).start()
    first.go(rounds=1)
    later = Apart(everybody(), raw(Candidates), tmp_path)
    h = later.holdings[SITE]
    later.grid.nodes[100 + SITE] = later.node(
        replace(h, x=h.x[1:], labels=h.labels.between(1, len(h.x)), ids=h.ids[1:])
    )
    later.start(replace(AT_ONCE, back=0.01))
    assert (
        "node 102 is not admitted: site2 began this run with 31 rows, and now has 30 rows"
        in (tmp_path / "run" / "messages.txt").read_text()
    )


def test_a_node_that_says_nothing_does_not_hold_up_every_round(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start(replace(AT_ONCE, hello=0.2))
    asked = []
    apart.grid.nodes[7] = apart.node(apart.holdings[0])
    apart.grid.nodes[7].mishap = lambda message, answer: asked.append(message)
    apart.server.transport.timeouts = replace(AT_ONCE, hello=0.01)
    apart.server.transport.look()
    apart.server.transport.timeouts = replace(AT_ONCE, hello=60)
    apart.go()
    assert len(asked) == 1


def test_too_few_answers_end_the_run_with_names(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    for node in (100, 101, 102):
        apart.grid.nodes[node].mishap = lambda message, answer: None
    with pytest.raises(
        QuorumError, match=r"1 of 4 sites answered.*site0, site1, site2: it did not answer within 0.05 s"
    ):
        apart.go()


def test_all_answers_not_finite_is_called_diverged(tmp_path: Path) -> None:
    apart = Apart(everybody("fedavg"), raw(Exact), tmp_path).start()
    for node in apart.grid.nodes.values():
        node.mishap = in_round(WAYS["not finite"][0])
    with pytest.raises(DivergedError, match="the run has diverged"):
        apart.go()


def test_a_site_says_what_it_could_not_read(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()

    def broken(message: Message, answer: Answer) -> Message:
        array = message.content.array_records["down"]["w"]
        array.data = array.data[:20]
        return answer(message)

    apart.grid.nodes[100 + SITE].mishap = in_round(broken)
    apart.go()
    assert apart.reports[ROUND].failures[SITE].reason.startswith("'down/w' cannot be read")


def test_what_goes_wrong_with_a_row_stays_at_the_site(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)

    def unreadable(config: Config, declaration: str) -> SiteFiles:
        raise DataError("site2.csv, line 7: patient 4711 has no label")

    place = apart.place
    apart.place = lambda h: replace(place(h), files=unreadable) if h.name == "site2" else place(h)  # type: ignore
    with pytest.raises(QuorumError, match=r"site2 did not connect within 0.1 s"):
        apart.start(replace(Timeouts(), gather=0.1, hello=1, poll=0.01))
    told = (apart.folder / "run" / "messages.txt").read_text()
    assert "node 102 is not admitted: DataError; its log says why" in told
    assert "4711" not in told
    assert "4711" in (apart.folder / "site2" / "log.txt").read_text()


def test_strangers_and_doubles_are_not_taken_in(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    stranger = replace(apart.holdings[0], name="nobody")
    apart.grid.nodes = {7: apart.node(stranger)} | apart.grid.nodes | {300: apart.node(apart.holdings[1])}
    apart.start()
    assert apart.server.transport.nodes == {f"site{k}": 100 + k for k in range(4)}
    told = (apart.folder / "run" / "messages.txt").read_text()
    assert "node 7 is not admitted: 'nobody' is not a site of this run: site0, site1, site2, site3" in told
    assert "node 300 is not admitted: 'site1' is already connected" in told


def test_a_site_that_restarts_is_taken_in_when_its_old_node_is_gone(tmp_path: Path) -> None:
    """Without keys it comes under another number, while the old one is still listed."""
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    apart.grid.nodes[555] = apart.node(apart.holdings[SITE])
    apart.server.transport.look()
    assert apart.server.transport.nodes["site2"] == 100 + SITE
    del apart.grid.nodes[100 + SITE]
    apart.server.transport.look()
    assert apart.server.transport.nodes["site2"] == 555


def test_a_site_that_cannot_say_hello_is_asked_seldom_and_again_when_it_comes_back(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    node, asked = apart.grid.nodes[100 + SITE], []

    def unready(message: Message, answer: Answer) -> Message:
        asked.append(message)
        return Message(pack(Payload({FAILED: "DataError; its log says why"})), reply_to=message)

    node.mishap = unready
    transport = apart.coordinator().transport
    for _ in range(3):
        transport.look()
    assert len(asked) == 1
    transport.timeouts = replace(AT_ONCE, again=0)
    transport.look()
    assert len(asked) == 2
    node.mishap, node.online = None, False
    transport.look()
    node.online = True
    transport.look()
    assert transport.nodes["site2"] == 100 + SITE


def test_a_name_without_its_key_is_not_taken_in(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    server = apart.coordinator(replace(AT_ONCE, gather=0.05))
    server.transport.admitted = {"site0": 100, "site1": 999, "site2": 102, "site3": 103}
    with pytest.raises(QuorumError, match=r"site1 did not connect within 0.05 s"):
        server.transport.gather()
    told = (tmp_path / "run" / "messages.txt").read_text()
    assert "node 101 is not admitted: it claims to be 'site1', but its key is not that site's" in told


def test_a_site_that_changed_its_rows_is_not_taken_in_again(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path).start()
    h = apart.holdings[SITE]
    fewer = replace(h, x=h.x[1:], labels=h.labels.between(1, len(h.x)), ids=h.ids[1:])
    del apart.grid.nodes[100 + SITE]
    apart.grid.nodes[555] = apart.node(fewer)
    apart.server.transport.look()
    assert (
        "node 555 is not admitted: site2 began this run with 31 rows, and now has 30 rows"
        in (tmp_path / "run" / "messages.txt").read_text()
    )


def test_sums_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)

    def infinite(message: Message, answer: Answer) -> Message:
        return changed(answer(message), lambda info: replace(info, trees={"sums": spoilt(info.trees["sums"])}), message)

    def spoilt(sums: Tree) -> Tree:
        return sums | {"square": sums["square"] / 0}

    apart.grid.nodes[101].mishap = infinite
    with pytest.raises(QuorumError, match="site1 did not connect"):
        apart.start(replace(AT_ONCE, gather=0.05))
    told = (tmp_path / "run" / "messages.txt").read_text()
    assert "node 101 is not admitted: site1: its sums for the scaling cannot be right: they are not finite" in told


def test_sums_of_very_few_rows_do_not_leave_a_site(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    h = apart.holdings[1]
    apart.grid.nodes[101] = apart.node(replace(h, x=h.x[:9], labels=h.labels.between(0, 9), ids=h.ids[:9]))
    with pytest.raises(QuorumError, match="site1 did not connect"):
        apart.start(replace(AT_ONCE, gather=0.05))
    told = (tmp_path / "run" / "messages.txt").read_text()
    assert "site1 has 9 rows; sums of fewer than 10 say too much about each" in told


def test_sites_must_agree_about_classes(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    other = replace(apart.holdings[1], classes=("a", "b", "c", "other"))
    apart.grid.nodes[101] = apart.node(other)
    with pytest.raises(DataError, match="site1: its classes"):
        apart.start()


def test_a_site_that_comes_back_while_its_old_session_is_asked_is_asked_again_in_time(tmp_path: Path) -> None:
    """Its first hello fails, since the session is gone; nobody is seen to leave, and yet it must be back soon."""
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    node = apart.grid.nodes[100 + SITE]
    node.mishap = lambda message, answer: Message(pack(Payload({FAILED: "Node Unavailable"})), reply_to=message)
    transport = apart.coordinator().transport
    transport.look()
    node.mishap = None
    assert Timeouts().again < Timeouts().back / 2
    transport.timeouts = replace(AT_ONCE, again=0)
    transport.look()
    assert transport.nodes["site2"] == 100 + SITE


def test_a_run_that_diverges_at_the_sites_says_so(tmp_path: Path) -> None:
    """Each site refuses its own answer; that it was for numbers that are not finite travels with the refusal."""
    apart = Apart(everybody(**{"local.lr": 1e30}), raw(Candidates), tmp_path).start()
    with pytest.raises(DivergedError, match=r"the run has diverged: 0 of 4 sites answered"):
        apart.go()
