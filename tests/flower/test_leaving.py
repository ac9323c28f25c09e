"""The end of a run: whoever is killed or away, every site gets its model and writes its own report in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from imperfed.core.errors import DataError, SiteFailedError
from imperfed.core.labels import Candidates
from imperfed.experiments import experiment
from imperfed.experiments.watch import Watch
from imperfed.flower.coordinator import coordinator as coordinator_module
from imperfed.flower.coordinator.leaving import Leaving
from imperfed.flower.coordinator.serving import has_ended
from imperfed.flower.messages.payload import unpack
from imperfed.flower.messages.transport import NODE_UNAVAILABLE, Timeouts
from imperfed.flower.site import site_results
from imperfed.flower.site.joining import Ending
from imperfed.results.folder import RunFolder
from tests.support.rehearsal import AT_ONCE, Apart, raw, settled

SOON = replace(AT_ONCE, back=0.02)


class Killed(BaseException):
    """Ends the coordinator as a kill would: nobody catches it."""


@pytest.fixture(autouse=True)
def plain_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take long to draw."""
    for room in (experiment, site_results, coordinator_module):
        monkeypatch.setattr(room, "write_report", lambda folder: folder.write("report.html", str(folder.path)))


def rehearsed(folder: Path, **more: Any) -> Apart:
    config = settled("pfedpll", **{"rounds.participation": 1.0, "rounds.rounds": 2} | more)
    apart = Apart(config, raw(Candidates), folder)
    RunFolder(folder / "run").write("config.toml", config.toml())
    return apart


def reports(apart: Apart) -> list[str]:
    return sorted(path.parts[-3] for path in apart.folder.glob("site*/run/report.html"))


def go(apart: Apart, timeouts: Timeouts = SOON) -> RunFolder:
    server = apart.coordinator(timeouts)
    server.run(Watch())
    return server.folder


def models(apart: Apart) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in apart.folder.glob("site*/run/models/site*.safetensors")}


def killed_in(apart: Apart, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the coordinator as it enters this method of `Leaving`."""

    def kill(*words: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Leaving, name, kill)
        with pytest.raises(Killed):
            go(apart)


EVERYBODY = ["site0", "site1", "site2", "site3"]


def test_killed_before_the_first_site_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`summary.json` is written, and no site has its report: what they are sent is made again from the checkpoint."""
    apart = rehearsed(tmp_path / "killed")
    killed_in(apart, "write", monkeypatch)
    folder = RunFolder(tmp_path / "killed" / "run")
    assert folder.summary() is not None
    assert not has_ended(folder)
    assert reports(apart) == []
    go(rehearsed(tmp_path / "killed"))
    assert has_ended(folder)
    assert reports(apart) == EVERYBODY
    whole = rehearsed(tmp_path / "whole")
    go(whole)
    assert models(apart) == models(whole)


def test_killed_while_sites_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the sites that have not confirmed are asked; nothing else is asked of them."""
    apart = rehearsed(tmp_path / "killed")
    killed_in(apart, "_confirm", monkeypatch)
    again = rehearsed(tmp_path / "killed")
    go(again)
    kinds = {message.metadata.message_type for way, message in again.grid.sent if way == "down"}
    assert kinds == {"query.hello", "query.leave"}
    assert reports(again) == EVERYBODY
    whole = rehearsed(tmp_path / "whole")
    go(whole)
    assert models(again) == models(whole)
    assert [path.name for path in (tmp_path / "killed" / "run" / "checkpoints").glob("leaving*")] == ["leaving.json"]


def test_a_site_that_is_away_at_the_end_gets_its_results_later(tmp_path: Path) -> None:
    apart = rehearsed(tmp_path)
    server = apart.coordinator(SOON)
    server.run(Watch(round=lambda report, seconds: apart.grid.nodes.pop(102, None) if report.round == 1 else None))
    assert reports(apart) == ["site0", "site1", "site3"]
    assert not has_ended(server.folder)
    assert "site2 did not write its own report: it was away" in (tmp_path / "run" / "log.txt").read_text()
    assert f"`imperfed resume {server.folder.path}` waits for it" in (tmp_path / "run" / "log.txt").read_text()
    later = rehearsed(tmp_path)
    for number in (100, 101, 103):  # these have left
        later.grid.nodes.pop(number)
    go(later)
    assert reports(apart) == EVERYBODY
    assert has_ended(server.folder)


def test_a_site_that_comes_back_while_the_others_leave_is_waited_for(tmp_path: Path) -> None:
    apart = rehearsed(tmp_path)
    gone = []

    def leave_with_the_last(message: Message, answer: Any) -> Message:
        if gone and message.metadata.message_type == "query.leave":
            apart.grid.nodes[555] = gone.pop()
        return answer(message)

    apart.grid.nodes[103].mishap = leave_with_the_last
    server = apart.coordinator(replace(AT_ONCE, back=5))
    server.run(Watch(round=lambda report, s: gone.append(apart.grid.nodes.pop(102)) if report.round == 1 else None))
    assert reports(apart) == EVERYBODY
    assert has_ended(server.folder)


def test_a_site_that_was_lost_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    apart, lost = rehearsed(tmp_path), list[int]()

    def lost_once(message: Message, answer: Any) -> Message:
        if message.metadata.message_type != "query.leave" or lost:
            return answer(message)  # type: ignore[no-any-return]
        lost.append(1)
        return Message(Error(NODE_UNAVAILABLE, "no sign of life"), reply_to=message)

    apart.grid.nodes[102].mishap = lost_once
    folder = go(apart, replace(AT_ONCE, back=5))
    assert lost
    assert ErrorCode.NODE_UNAVAILABLE == NODE_UNAVAILABLE
    assert reports(apart) == EVERYBODY
    assert has_ended(folder)


def test_a_site_that_cannot_write_its_results_says_so_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = rehearsed(tmp_path)
    real = site_results.write_outcome

    def full(folder: RunFolder, *rest: Any) -> None:
        if "site1" in folder.path.parts:
            raise DataError("the disk is full")
        real(folder, *rest)

    ending = Ending(tmp_path / "site1", way=None)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(site_results, "write_outcome", full)
        folder = go(apart)
    assert not has_ended(folder)
    assert "site1 could not write its results (DataError: the disk is full); join again" in ending.trouble
    assert ending.report is None
    go(rehearsed(tmp_path))
    assert has_ended(folder)
    assert reports(apart) == EVERYBODY


def test_a_site_that_fails_in_every_round_changes_the_exit_code_and_is_told(tmp_path: Path) -> None:
    apart = rehearsed(tmp_path)

    def fails(message: Message, answer: Any) -> Message:
        if message.metadata.message_type == "train":
            message.content.array_records["down"]["w"].data = b""
        return answer(message)

    apart.grid.nodes[102].mishap = fails
    ending = Ending(tmp_path / "site2", way=None)  # type: ignore[arg-type]
    with pytest.raises(SiteFailedError, match=r"^site2 failed in every round: 'down/w' cannot be read") as error:
        go(apart)
    assert error.value.exit_code == 6
    assert has_ended(RunFolder(tmp_path / "run"))
    assert "site2 failed in every round: 'down/w' cannot be read" in ending.trouble
    assert not Ending(tmp_path / "site1", way=None).trouble  # type: ignore[arg-type]


def test_a_site_that_fails_in_some_rounds_does_not(tmp_path: Path) -> None:
    apart = rehearsed(tmp_path)

    def fails_once(message: Message, answer: Any) -> Message:
        if unpack(message.content).words.get("round") == 1 and "down" in message.content.array_records:
            message.content.array_records["down"]["w"].data = b""
        return answer(message)

    apart.grid.nodes[102].mishap = fails_once
    go(apart)
