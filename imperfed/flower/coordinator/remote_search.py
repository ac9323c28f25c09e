"""The sites of a search over a network: trials are ordinary exchanges, and of labels only sums and figures arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from imperfed.alone import AloneModel
from imperfed.core.errors import DivergedError, ImperfedError, QuorumError
from imperfed.core.temperatures import TEMPERATURES
from imperfed.data.federate import FederatedData
from imperfed.engine.engine import Engine
from imperfed.engine.failures import Crashed, Failure
from imperfed.engine.population import Population, lowering
from imperfed.evaluation.paired import Difference, combined
from imperfed.experiments.auto import trials
from imperfed.experiments.auto.combinations import Combination
from imperfed.experiments.auto.consensus import pairs
from imperfed.experiments.auto.search_sites import Settled, SiteChoice, Tell
from imperfed.experiments.auto.site_choice import WEIGHTS
from imperfed.experiments.auto.trials import PATIENCE, Progress
from imperfed.experiments.config import Config
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.search_checkpoint import SearchCheckpoint
from imperfed.flower.messages.charging import charged
from imperfed.flower.messages.payload import Payload, Word
from imperfed.flower.messages.search_figures import (
    agreement_of,
    consensus_words,
    difference_of,
    family_words,
    likelihoods_of,
    option_of,
    score_of,
)

T = TypeVar("T")


@dataclass
class SitesElsewhere:
    """Real sites of a search."""

    sites: GatheredSites
    combinations: Sequence[Combination]
    base: Config
    """The settings before anything is chosen, with the share of rows that sites hold out."""
    checkpoint: SearchCheckpoint
    kinds: Sequence[AloneModel] = ()
    """The families that the sites have fitted."""
    temperature: float = 1.0
    weights: Mapping[int, float] = field(default_factory=dict)
    """Of the trials whose consensus takes the place of the labels held out; empty: none does."""
    data: FederatedData = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.sites.data()

    # -- trials -------------------------------------------------------------------------------------------------------

    def advance(
        self, alive: Sequence[int], done: Mapping[int, Progress], rounds: int, last: bool
    ) -> Iterator[tuple[int, Progress | Failure]]:
        for number in alive:
            result = self.checkpoint.load(number, rounds)
            if result is None:
                progress = done.get(number, Progress())
                result = self._advance(number, alive, progress, rounds, PATIENCE if last else 0)
                self.checkpoint.save(number, rounds, result)
            yield number, result

    def _advance(
        self, number: int, alive: Sequence[int], progress: Progress, rounds: int, patience: int
    ) -> Progress | Failure:
        try:
            return trials.train(self._engine(number, rounds, patience, alive), progress)
        except ImperfedError as error:
            self.sites.transport.look()
            diverged = isinstance(error, DivergedError)
            # A site that has left says nothing about the trial: the run stops, and is resumed when the site is back.
            if isinstance(error, QuorumError) and not diverged and self.sites.transport.missing():
                raise
            return Crashed(f"{type(error).__name__}: {error}")

    def _engine(self, number: int, rounds: int, patience: int, alive: Sequence[int]) -> Engine:
        """Return the engine of a trial, whose sites answer by message."""
        config = trials.trial_config(self._settings(self.combinations[number].config), rounds, patience)
        told = self.sites.told(config, number, alive)

        def make_backend(population: Population, on_duty: int, workers: int) -> FlowerBackend:
            return FlowerBackend(self.sites.transport, told, population, on_duty)

        return trials.make_engine(config, self.data, make_backend)

    def _settings(self, config: Config) -> Config:
        """Return a trial's settings as the sites are told them: with rows held out, on the CPU."""
        rounds = replace(config.rounds, max_share=self.base.rounds.max_share)
        run = replace(config.run, device="cpu")
        return self.sites.fitting(replace(config, split=self.base.split, rounds=rounds, run=run))

    # -- what the sites choose ----------------------------------------------------------------------------------------

    def apply(self, numbers: Sequence[int], done: Mapping[int, Progress]) -> None:
        for number in numbers:
            self._ask("query.apply", self._with_models(number, done[number], numbers), "trials", lambda k, reply: None)

    def agree(self, numbers: Sequence[int], weights: Mapping[int, float]) -> list[Tensor]:
        words = {"numbers": list(numbers)} | consensus_words(weights)
        held, lowered, most = self._held(), self._lowered(), pairs(len(weights))
        return self._ask(
            "query.agree",
            self._payloads(words),
            "agreement",
            lambda k, reply: agreement_of(reply, len(numbers), held[k], most) * lowered[k],
        )

    def judge_by_consensus(self, weights: Mapping[int, float]) -> None:
        self.weights = dict(weights)

    def _with_models(self, number: int, progress: Progress, alive: Sequence[int]) -> dict[int, Payload]:
        """Return a message to every site with a trial's model of its best round."""
        with closing(self._engine(number, progress.round, 0, alive)) as engine:
            trials.restore(engine, progress)
            engine.return_to_best()
            assert isinstance(engine.backend, FlowerBackend)
            return engine.backend.with_models(lambda k: consensus_words(self.weights))

    def calibrate(self, number: int, progress: Progress) -> list[Tensor]:
        payloads = self._with_models(number, progress, (number,))
        return self._ask("query.calibrate", payloads, "calibration", self._likelihoods(len(TEMPERATURES)))

    def fit_alone(self, kinds: Sequence[AloneModel], tell: Tell) -> list[Tensor]:
        self.kinds, columns = kinds, []
        for number, kind in enumerate(kinds):
            words = family_words([kind]) | {"number": number}
            about = f"models alone, {number + 1} of {len(kinds)}"
            columns.append(self._ask("query.alone", self._payloads(words), about, self._likelihoods(1)))
            tell(number + 1, len(kinds))
        return [torch.cat(sums) for sums in zip(*columns, strict=True)]

    def mix(self, family: int, temperature: float) -> list[Tensor]:
        self.temperature = temperature
        words = family_words(self.kinds) | {"family": family, "temperature": temperature}
        return self._ask("query.mix", self._payloads(words), "mixtures", self._likelihoods(len(WEIGHTS)))

    def settle(self, weight: int) -> Settled:
        words = family_words(self.kinds) | {"weight": weight, "temperature": self.temperature}
        classes, held = len(self.data.federation.classes), self._held()
        likelihoods = self._likelihoods(len(TEMPERATURES))

        def read(k: int, reply: Payload) -> tuple[SiteChoice, Difference | None, Tensor]:
            kind = self.kinds[option_of(reply, "family", len(self.kinds))]
            share = WEIGHTS[option_of(reply, "weight", len(WEIGHTS))]
            choice = SiteChoice(kind, share, score_of(reply, "score", classes))
            return choice, difference_of(reply, held[k], classes), likelihoods(k, reply)

        answers = self._ask("query.settle", self._payloads(words), "the choice", read)
        choices, differences, sums = zip(*answers, strict=True)
        return Settled(choices, combined([one for one in differences if one is not None]), sums)

    def keep(self, temperature: float, mixture_temperature: float) -> None:
        """Let each site fit its own model to all its rows, and keep the mixture."""
        words: dict[str, Word] = {"temperature": temperature, "mixture temperature": mixture_temperature}
        self._ask("query.keep", self._payloads(words), "models alone on all rows", lambda k, reply: None)

    def close(self) -> None:
        """Do nothing: the sites forget a search when it has ended."""

    def _held(self) -> list[int]:
        held = self.data.federation.validation
        assert held is not None
        return held.sizes()

    def _lowered(self) -> list[float]:
        """Return what the sums of each site count: less than 1 if it says that it holds out more than its share."""
        return lowering(self._held(), self.base.rounds.max_share)

    def _payloads(self, words: dict[str, Word]) -> dict[int, Payload]:
        words = consensus_words(self.weights) | words
        return {k: told.payload(words) for k, told in enumerate(self.sites.told(self._settings(self.base)))}

    def _likelihoods(self, options: int) -> Callable[[int, Payload], Tensor]:
        held, lowered = self._held(), self._lowered()
        return lambda k, reply: likelihoods_of(reply, options, held[k]) * lowered[k]

    def _ask(self, kind: str, payloads: dict[int, Payload], about: str, read: Callable[[int, Payload], T]) -> list[T]:
        """Wait for all sites, ask them, and return what they say, in their order: the choice needs all of them."""
        transport = self.sites.transport
        transport.look()
        transport.gather()
        answers, failed = usable(transport.send(kind, payloads, about), read)
        if failed:
            reasons = "; ".join(f"{transport.names[k]}: {why}" for k, why in failed.items())
            raise QuorumError(f"{about}: every site must answer. {reasons}")
        return list(answers.values())


def usable(
    replies: Mapping[int, Payload | Failure], read: Callable[[int, Payload], T]
) -> tuple[dict[int, T], dict[int, str]]:
    """Return the answers that can be read, by site, and why the others cannot."""
    answers, failed = dict[int, T](), dict[int, str]()
    for k, reply in sorted(replies.items()):
        if isinstance(reply, Failure):
            failed[k] = reply.reason
            continue
        answer = charged(partial(read, k, reply))
        if isinstance(answer, Failure):
            failed[k] = answer.reason
        else:
            answers[k] = answer
    return answers, failed
