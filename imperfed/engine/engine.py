"""The rounds of a run: which sites take part, what is exchanged, which fail, what is recorded and when it is saved."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.components import Adversaries, Defence
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Exchange, Updates, WeightedGradient
from imperfed.core.federation import Federation
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.core.threads import one_thread
from imperfed.engine.backends.base import Backend, TrainsAtServer
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.best_round import BestRound
from imperfed.engine.local_training import Local
from imperfed.engine.misfits import refuse_misfits
from imperfed.engine.opening import opened
from imperfed.engine.population import ModelEvaluator, Population, Scores
from imperfed.engine.private_run import PrivacyBudget, refuse_misfit_privacy
from imperfed.engine.recipe import refuse_misfit_recipe
from imperfed.engine.round_exchanges import RoundExchanges
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.engine.seeds import SERVER, generator, on_duty_in, seeded
from imperfed.engine.server import Server, defence_memory, questions
from imperfed.engine.site import RunSpec, SiteRuntime
from imperfed.engine.state import State

CPU = torch.device("cpu")
SAVING = 0.05
"""The share of the time that a run which can break spends on checkpoints, besides those it writes anyway."""
MakeBackend = Callable[[Population, int, int], Backend]
"""Makes the backend from the population, the number of sites on duty and the requested number of workers."""


class Engine:
    """A run: built from its parts, advanced by `run`, closed at the end."""

    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective,
        network: Network,
        federation: Federation,
        evaluator: ModelEvaluator,
        local: Local,
        rounds: Rounds,
        seed: int,
        defence: Defence | None = None,
        make_backend: MakeBackend = ProcessBackend,
        device: torch.device = CPU,
        adversaries: Adversaries | None = None,
        privacy: PrivacyMechanism | None = None,
    ) -> None:
        if algorithm.pools_data:
            local = for_all(local, len(federation.sites))
            federation = federation.pooled()
        self.rounds = rounds
        self.on_duty = max(1, round(rounds.participation * len(federation.sites)))
        with seeded(seed, 0, SERVER, "build"):
            network = algorithm.build(copy.deepcopy(network))
            layout = Layout.of(network, algorithm.is_personal)
            refuse_misfits(algorithm, objective, local, layout, federation, defence, self.on_duty, adversaries)
            row = layout.row(network)
            remembered = defence_memory(defence), seed, rounds.site_memory
            state = State.fresh(algorithm, objective, federation, layout, row, *remembered)
        state.best = no_best_round_yet(rounds, federation)
        asked = questions(defence, federation.attribute)
        spec = RunSpec(
            algorithm, objective, layout, local, seed, rounds=rounds.rounds, questions=asked, privacy=privacy
        )
        refuse_misfit_recipe(spec, federation)
        refuse_misfit_privacy(spec, self.on_duty, federation, defence is not None or adversaries is not None)
        self.budget = PrivacyBudget(privacy, self.sample) if privacy is not None and privacy.multiplier else None
        runtime = SiteRuntime(spec, _net(network, layout))
        self.population = Population(runtime, federation, state, evaluator, rounds.max_share)
        self.server = Server(self.population, _net(network, layout), defence, adversaries)
        self.saved = (-math.inf, 0.0)
        """When the last checkpoint was written, and the seconds that it took."""
        self.figures: tuple[int, Sequence[int] | None, dict[int, Scores], Scores] | None = None
        """The round after which models were last evaluated, which sites' (None: all), and the scores."""
        self.backend: Backend = make_backend(self.population, self.on_duty, rounds.workers)
        self.server.backend = self.backend if isinstance(self.backend, TrainsAtServer) else None
        self.exchanges = RoundExchanges(self.population, self.backend, rounds)
        try:
            self.opened = self._open(device)
        except BaseException:  # the caller has no engine that it could close
            self.backend.close()
            raise

    def _open(self, device: torch.device) -> RoundReport:
        """Carry out the exchanges before round 0, and begin the rounds on a device; return what passed."""
        if self.backend.opens_on_device:
            self.move_to(device)
        report = opened(self.server, self.backend)
        self.backend.start()
        self.move_to(device)
        return report

    def move_to(self, device: torch.device) -> None:
        """Move what is computed with to a device, unless it is there already; what sites keep stays in host memory."""
        if device == self.population.runtime.net.row.device:
            return
        self.population.move_to(device)
        self.server.net = Net(self.server.net.module.to(device), self.population.spec.layout)

    @property
    def state(self) -> State:
        """Everything that the run remembers."""
        return self.population.state

    def run(self, watch: Callable[[RoundReport], None], stop: Callable[[], bool], checkpoint: Path | None) -> bool:
        """Run to the last round. Return False if `stop` ended the run earlier; the checkpoint is then up to date."""
        if checkpoint is not None:
            self.state.lie_in(checkpoint.parent)
        while not self.ended:
            began = time.perf_counter()
            report = self.round(self.state.round)
            report.seconds = time.perf_counter() - began
            self.state.round += 1
            if self.ended or self.state.round % self.rounds.evaluate_every == 0:
                tested = self.judging(self.population.evaluator.sites)
                report.personal, report.common = self.evaluate(ahead=not self.ended, sites=tested)
                self.validate(report)
            last = self.ended
            watch(report)
            stopped = stop()  # after `watch`, which may ask for it
            if last or stopped:  # whatever happens now, models and results need what the sites remember
                self.backend.gather()
            if checkpoint and (last or stopped or self.due):
                self.save(checkpoint)
            if stopped and not last:
                return False
        return True

    @property
    def due(self) -> bool:
        """Whether a checkpoint is written after this round; if a run can break, as often as it takes little time."""
        if self.state.round % self.rounds.checkpoint_every == 0:
            return True
        ended, took = self.saved
        return self.backend.can_break and SAVING * (time.perf_counter() - ended) >= took

    def save(self, checkpoint: Path) -> None:
        """Write a checkpoint, for which all that the sites remember is brought here."""
        began = time.perf_counter()
        self.backend.gather()
        self.state.save(checkpoint)
        ended = time.perf_counter()
        self.saved = ended, ended - began

    def whole_state(self) -> Tree:
        """Return everything that the run remembers, brought here from the sites."""
        self.backend.gather()
        return self.state.flat()

    @property
    def ended(self) -> bool:
        """Whether no round follows: all are done, a further one promises nothing, or would cost too much privacy."""
        if self.state.round >= self.rounds.rounds or self.stalled:
            return True
        return self.budget is not None and self.budget.forbids(self.state.round)

    @property
    def stalled(self) -> bool:
        """Whether the held-out rows have shown no gain for as long as `rounds.patience` waits."""
        best, patience = self.state.best, self.rounds.patience
        return best is not None and 0 < patience <= best.waited

    def validate(self, report: RoundReport) -> None:
        """Judge a round that was evaluated by the rows that the sites hold out, if they do."""
        if (best := self.state.best) is not None:
            validity = self.backend.validate(self.judging(len(self.population.sizes)))
            report.validity = {k: one for k, one in validity.items() if one.known}
            report.validation = best.judge(self.state.round, report.validity, self.whole_state)
            report.best = best.round
            report.sent |= {"validation": (2,)}

    def return_to_best(self) -> int:
        """Take over the state of the best round, if that is wanted; return the round whose state this now is."""
        best = self.state.best
        if best is None or not best.state:
            return self.state.round
        if best.round < self.state.round:
            self.state.return_to_best()
            self.backend.scatter()
            self.figures = None
        return best.round

    def sample(self, round: int) -> tuple[int, ...]:
        """Return the sites on duty in this round, in order."""
        return on_duty_in(self.population.spec.seed, round, len(self.population.sizes), self.on_duty)

    def round(self, round: int) -> RoundReport:
        """Carry out all exchanges of one round."""
        report = RoundReport(round, self.sample(round), {}, {})
        if round == 0:
            report.down, report.up, report.sent = self.opened.down, self.opened.up, dict(self.opened.sent)
            report.notes += self.opened.notes
        contexts = self.server.contexts(round)
        for number, exchange in enumerate(self.population.spec.algorithm.exchanges(round)):
            if isinstance(exchange, WeightedGradient):
                updates = self.exchanges.sum_gradients(round, number, exchange, report, contexts[0])
            else:
                with one_thread():
                    updates = self.exchange(round, number, exchange, report)
            with one_thread():
                merged = self.exchanges.summed(round, number, exchange, updates, report)
                if merged is not None:
                    self.server.take(exchange, merged, contexts)
        report.notes += [*self.backend.notes, *(note for context in contexts for note in context.notes)]
        self.backend.notes.clear()
        report.verdicts = self.server.verdicts(contexts)
        report.epsilons = {} if self.budget is None else self.budget.epsilons(round)
        return report

    def exchange(self, round: int, number: int, exchange: Exchange, report: RoundReport) -> Updates:
        """Ask the sites on duty, handle failures, and stack the answers."""
        return self.exchanges.ask(round, number, exchange, report)

    def judging(self, sites: int) -> tuple[int, ...] | None:
        """Return the sites whose rows a round is judged by, of so many: drawn once for the run; None: all of them."""
        most = self.rounds.evaluate_sites
        if not 0 < most < sites or self.population.federation.elsewhere:
            return None
        draw = generator(self.population.spec.seed, 0, SERVER, "judging")
        return tuple(sorted(torch.randperm(sites, generator=draw)[:most].tolist()))

    def evaluate(self, ahead: bool = False, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of the sites' models, and of the global model if there is one; computed once per round.

        `ahead`: whether another round may follow. `sites`: those whose models are wanted; None: all.
        """
        if self.figures is None or self.figures[:2] != (self.state.round, sites):
            self.figures = (self.state.round, sites, *self.backend.evaluate(ahead, sites))
        return self.figures[2:]

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of every training row, as probabilities; None where none are inferred."""
        return self.backend.inferred_labels()

    def model(self, site: int) -> Tree:
        """Return the named tensors of the model with which a site predicts."""
        row = self.population.predictor(site).row
        return {name: t.clone() for name, t in self.population.spec.layout.tree(row).items()}

    @property
    def personalised(self) -> bool:
        """Whether sites predict with models of their own."""
        own = "model" in self.population.spec.algorithm.overridden
        return own or self.state.personal.shape[1] > 0 or len(self.state.servers) > 1

    def shared_model(self) -> Tree:
        """Return the named tensors that all sites share; empty where the server keeps several models."""
        spec = self.population.spec
        if len(self.state.servers) > 1 or not spec.algorithm.has_global_model:
            return {}
        server = self.state.server
        row = spec.layout.join(server["w"], server["buffers"], self.state.personal[0])
        return {name: t.clone() for name, t in spec.layout.tree(row).items() if not spec.algorithm.is_personal(name)}

    def close(self) -> None:
        """Shut the backend down."""
        self.backend.close()


def no_best_round_yet(rounds: Rounds, federation: Federation) -> BestRound | None:
    """Return what is known of the best round before the first one; None where no site holds rows out to judge by."""
    if federation.validation is not None:
        return BestRound.fresh(len(federation.sites), rounds.keep_best)
    if rounds.patience:
        raise UsageError(
            f"rounds.patience = {rounds.patience} ends a run by rows that the sites hold out, and none does; set "
            "split.validation, such as 0.1 (with partition = label no site holds rows out)"
        )
    return None


def for_all(local: Local, sites: int) -> Local:
    """Return how one site trains that holds the rows of so many."""
    steps = {name: sites * getattr(local, name) for name in ("steps", "min_steps", "max_steps")}
    return replace(local, **steps)


def _net(network: Network, layout: Layout) -> Net:
    return Net(copy.deepcopy(network).eval(), layout)
