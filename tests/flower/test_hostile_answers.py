"""One site may answer anything: it is named, it costs no one else anything, and the run ends with results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Message

from imperfed.core.labels import Exact
from imperfed.experiments.config import Config
from imperfed.experiments.progress import Show
from imperfed.flower.messages.local_grid import Forged
from imperfed.flower.messages.payload import ASKED, pack
from rich.console import Console
from tests.support.hostile import Change, Cached, changes, make_cached
from tests.support.rehearsal import AT_ONCE, Apart, raw, settled

SITE, NODE = "site2", 102
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

    return Cached(next_one, lambda message: message.metadata.message_type == kind)


def test_whatever_a_site_answers_the_others_go_on(tmp_path: Path) -> None:
    wrong = all_changes(everybody(), tmp_path / "first", "train", 150)
    config = everybody(**{"rounds.rounds": len(wrong) + 1})
    apart = Apart(config, raw(Exact), tmp_path / "second")
    make_cached(apart.grid)
    apart.grid.nodes[NODE].mishap = hostile(list(wrong.values()), "train")
    server = apart.coordinator(NEVER_LOST)
    server.folder.write("config.toml", server.config.toml())
    reports = []
    watch = Show(Console(file=(tmp_path / "printed").open("w"))).watch()
    shown = watch.round
    summary = server.run(replace(watch, round=lambda report, seconds: (reports.append(report), shown(report, seconds))))
    told = (server.folder.path / "messages.txt").read_text(encoding="utf-8")
    print(len(wrong), len(reports), summary.personal)
    for name, report in zip(wrong, reports):
        why = report.failures.get(2)
        print(name, "|", why.reason[:100] if why else "-", 2 in report.personal)
    print(reports[-1].personal, reports[3].personal, told[-600:])
