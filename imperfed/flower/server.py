"""The coordinator: it waits for its sites, asks them round by round, and writes the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime

import torch
from flwr.serverapp import Grid

from imperfed.config import Config
from imperfed.core import Tree
from imperfed.data.holding import Card, Central
from imperfed.data.scale import Scale
from imperfed.disk import lengthen
from imperfed.engine.site import Bench
from imperfed.errors import UsageError
from imperfed.experiment import Experiment, Watch
from imperfed.flower.charter import Charter
from imperfed.flower.mail import Mail, Patience
from imperfed.flower.repair import hold
from imperfed.flower.roster import read_cards, write_cards
from imperfed.flower.staff import Sites
from imperfed.folder import Record, RunFolder


@dataclass
class Coordinator:
    """One run with real sites, from the first hello to the last product."""

    grid: Grid
    config: Config
    central: Central
    """What it holds itself."""
    sites: Sequence[str]
    folder: RunFolder
    declaration: str = ""
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        if self.config.method.gathers:
            raise UsageError(f"{self.config.run.method} brings all rows to one place; real sites keep theirs")
        if self.config.attack is not None and self.declaration:
            raise UsageError("attacks are simulated on datasets by name; at real sites nobody is asked to attack")
        if self.config.run.device == "cuda":
            raise UsageError("real sites compute on the CPU; leave device at auto, or cpu")
        self.config = replace(self.config, run=replace(self.config.run, device="cpu"))
        greeting = Charter("", self.config.toml(), self.declaration, 0, Scale.none(), {})
        self.mail = Mail(self.grid, tuple(self.sites), greeting, self.patience, self.say)

    def run(self, watch: Watch) -> Record:
        """Train to the end, from the last checkpoint if there is one, and write the products."""
        watch.prepare(self.config)
        try:
            with closing(self.experiment()) as experiment:
                summary = experiment.go(self.folder, watch)
                for k, why in self.staff.leave().items():
                    self.folder.log(f"{self.sites[k]} wrote no report of its own: {why}")
        finally:
            self.count()
        return summary

    def experiment(self) -> Experiment:
        """The run, as soon as every site is there: its sites answer by message."""
        cards = self.gather()
        scale = self.central.scale(cards)
        charters = self.charters(cards, scale)
        # A site may be killed at any time, and so may the coordinator: no more than a round is ever lost.
        config = replace(self.config, rounds=replace(self.config.rounds, checkpoint_every=1))

        def hire(bench: Bench, on_duty: int, workers: int) -> Sites:
            self.staff = Sites(self.mail, charters, config.rounds, bench, on_duty)
            return self.staff

        scene = self.central.scene(cards, scale)
        if config.repair is not None:
            scene = hold(self.mail, charters, config.repair, scene)
        experiment = Experiment(config, scene, hire)
        if self.folder.checkpoint.exists():
            experiment.engine.state.restore(self.folder.checkpoint)
            self.folder.forget_from(experiment.engine.state.round)
            self.folder.log(f"resumed after round {experiment.engine.state.round}")
        return experiment

    def gather(self) -> list[Card]:
        """The sites' cards as they were when the run began: a run that goes on has the same scale and sizes."""
        place = self.folder.checkpoint.parent
        self.mail.cards = read_cards(place)
        begun = self.folder.checkpoint.exists() and bool(self.mail.cards)
        everybody = not begun or self.config.repair is not None or bool(self.config.method.opening())
        quorum = max(1, math.ceil(self.config.rounds.quorum * len(self.sites)))
        cards = self.mail.gather(None if everybody else quorum)
        if not begun:
            write_cards(place, cards)
        return cards

    def count(self) -> None:
        """`traffic.json`: bytes to and from every site, of all processes that had a part in the run."""
        path, total = self.folder.path / "traffic.json", self.mail.traffic()
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for site, ways in total.items():
            for way in ways:
                ways[way] += before.get(site, {}).get(way, 0)
        self.folder.write("traffic.json", json.dumps(total, indent=2))

    def say(self, line: str) -> None:
        """A line of `mail.txt`: who was asked, who answered, how long it took."""
        lengthen(self.folder.path / "mail.txt", [f"{datetime.now().isoformat(timespec='seconds')} {line}"])

    def charters(self, cards: Sequence[Card], scale: Scale) -> list[Charter]:
        """What every site is told of the run with each message."""
        features = self.config.model.features or max(card.features for card in cards)
        self.config = replace(self.config, model=replace(self.config.model, features=features))
        annotated = anybody(cards)
        settings, run = self.config.toml(), self.folder.path.name
        return [Charter(run, settings, self.declaration, k, scale, annotated) for k in range(len(cards))]


def anybody(cards: Sequence[Card]) -> Tree:
    """Which classes any site annotates, where labels may be missing."""
    known = [card.annotated["classes"] for card in cards if card.annotated]
    return {"classes": torch.stack(known).any(0)} if known else {}
