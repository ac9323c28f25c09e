"""The rounds of a run: which sites take part, what is exchanged, which fail, what is recorded and when it is saved."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree, prefixed
from imperfed.core.components import Adversaries, Defence
from imperfed.core.context import ServerContext
from imperfed.core.errors import DataError, DivergedError, ImperfedError, QuorumError, UsageError
from imperfed.core.exchange import Exchange, Query, Train, Updates, WeightedGradient
from imperfed.core.federation import Attribute, Federation
from imperfed.core.mechanism import LARGEST_WEIGHT, PrivacyMechanism, SumMechanism, Summed
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.core.threads import one_thread
from imperfed.engine.backends.base import Backend, Reply, TrainsAtServer
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.best_round import BestRound
from imperfed.engine.failures import Failure, NotFinite, Unreadable
from imperfed.engine.local_training import Local
from imperfed.engine.population import ModelEvaluator, Population, Scores, capped
from imperfed.engine.private_run import PrivacyBudget, mean_of, refuse_not_private, refuse_not_summed
from imperfed.engine.recipe import refuse_misfit_recipe
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.engine.seeds import SERVER, generator, on_duty_in, seeded
from imperfed.engine.server import DEFENCE, Server
from imperfed.engine.shared_memory import lasting
from imperfed.engine.site import OPENING, RunSpec, SiteRuntime
from imperfed.engine.state import State, nbytes
from imperfed.engine.validate import check_alike, check_parts

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
        if federation.validation is not None:
            state.best = BestRound.fresh(len(federation.sites), rounds.keep_best)
        elif rounds.patience:
            raise UsageError(
                f"rounds.patience = {rounds.patience} ends a run by rows that the sites hold out, and none does; set "
                "split.validation, such as 0.1 (with partition = label no site holds rows out)"
            )
        asked = questions(defence, federation.attribute)
        if privacy is not None:
            refuse_not_private(privacy, algorithm, layout, rounds.rounds, asked)
            refuse_not_summed(privacy, self.on_duty, federation, defence is not None or adversaries is not None)
        spec = RunSpec(
            algorithm, objective, layout, local, seed, rounds=rounds.rounds, questions=asked, privacy=privacy
        )
        refuse_misfit_recipe(spec, federation)
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
        if self.backend.opens_on_device:
            self.move_to(device)
        self.opened = self.open()
        self.backend.start()
        self.move_to(device)

    def move_to(self, device: torch.device) -> None:
        """Move what is computed with to a device, unless it is there already; what sites keep stays in host memory."""
        if device == self.population.runtime.net.row.device:
            return
        self.population.move_to(device)
        self.server.net = Net(self.server.net.module.to(device), self.population.spec.layout)

    def open(self) -> RoundReport:
        """Carry out the exchanges before round 0, in which every site must answer."""
        state, report = self.state, RoundReport(OPENING, (), {}, {})
        contexts, sites = self.server.contexts(OPENING), range(len(self.population.sizes))
        n = torch.tensor(self.population.counts, device=self.population.runtime.net.row.device)
        for number, exchange in enumerate(self.population.spec.opening()):
            with one_thread():
                replies = self.backend.ask(OPENING, number, sites)
                parts = tuple(reply.up for reply in self.everybody(replies, "before round 1"))
                self.refuse_unlike(exchange, parts, any_length=True)
                updates = Updates(tuple(sites), n, {}, parts)
                for g, context in enumerate(contexts):
                    if own := self.server.of_group(updates, g):
                        server = self.combined(exchange, dict(state.servers[g]), own, context)
                        state.servers[g] = {name: lasting(t, n.device) for name, t in server.items()}
            report.down += sum(nbytes(self.population.down(k, exchange)) for k in sites)
            report.up += sum(map(nbytes, parts))
            report.sent |= {name: tuple(t.shape) for part in parts for name, t in part.items()}
        report.notes += [*self.lowered(), *(note for context in contexts for note in context.notes)]
        return report

    def lowered(self) -> list[str]:
        """Return a sentence for every site that counts with fewer rows than it has."""
        share, federation = self.rounds.max_share, self.population.federation
        return [
            f"{name} has {n} of {federation.starts[-1]} rows and counts as {count:.0f} (rounds.max_share = {share:g})"
            for name, n, count in zip(federation.sites, self.population.sizes, self.population.counts, strict=True)
            if count < n
        ]

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
            told = self.backend.validate(self.judging(len(self.population.sizes)))
            report.validity = {k: one for k, one in told.items() if one.known}
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
                updates = self.sum_gradients(round, number, exchange, report, contexts[0])
            else:
                with one_thread():
                    updates = self.exchange(round, number, exchange, report)
            with one_thread():
                merged = self.summed(round, number, exchange, updates, report)
                if merged is not None:
                    self.server.take(exchange, merged, contexts)
        report.notes += [*self.backend.notes, *(note for context in contexts for note in context.notes)]
        self.backend.notes.clear()
        report.verdicts = self.server.verdicts(contexts)
        report.epsilons = {} if self.budget is None else self.budget.epsilons(round)
        return report

    def sum_gradients(
        self, round: int, number: int, exchange: WeightedGradient, report: RoundReport, context: ServerContext
    ) -> Updates:
        """Return the weighted sum of the gradients of the sites on duty."""
        server, who = self.state.server, report.who
        n = self._counts(who)
        g, losses = self.backend.sum_gradients(round, number, who, exchange.weights(n))
        report.losses = dict(zip(who, losses.tolist(), strict=True))
        whole = server["w"].numel() + server["buffers"].numel()
        down, up = exchange.traffic(server, context) if exchange.traffic else (whole, whole)
        report.down += len(who) * down * g.element_size()
        report.up += len(who) * up * g.element_size()
        report.sent |= {"g": (up,)}
        return Updates(who, n, {"g": g.unsqueeze(0)})

    def exchange(self, round: int, number: int, exchange: Exchange, report: RoundReport) -> Updates:
        """Ask the sites on duty, handle failures, and stack the answers."""
        asked = tuple(k for k in report.who if k not in report.failures)
        replies: dict[int, Reply] = {}
        failures = self._ask(round, number, asked, replies)
        for _ in range(self.rounds.retries if self.rounds.on_failure == "retry" else 0):
            failures = self._ask(round, number, tuple(failures), replies) if failures else failures
        failures |= check_alike({k: reply.up for k, reply in replies.items()})
        who = tuple(k for k in asked if k not in failures)
        self._refuse_too_few(round, failures, len(report.who), len(who))
        report.failures |= failures
        updates = Updates(who, self._counts(who), self.backend.together(who, replies))
        privacy = self.population.spec.privacy
        if isinstance(exchange, Train) and privacy is None:  # with privacy no site tells its loss
            report.losses = {k: replies[k].loss for k in who}
        report.down += sum(nbytes(self.population.down(k, exchange)) for k in asked)
        if privacy is None or not privacy.sums:
            report.up += sum(nbytes(replies[k].up) for k in who)
            report.sent |= {name: tuple(t.shape) for name, t in replies[who[0]].up.items() if t.numel()}
        return updates

    def summed(
        self, round: int, number: int, exchange: Exchange, updates: Updates, report: RoundReport
    ) -> Updates | None:
        """Return the answers as the server gets them: one mean in their place where only sums leave the sites."""
        mechanism = self.population.spec.privacy
        if not isinstance(mechanism, SumMechanism):
            return updates
        counts = capped(updates.n.tolist(), LARGEST_WEIGHT)
        summed = Summed(updates.who, tuple(n / sum(counts) for n in counts))
        if why := summed.objection():
            report.notes.append(f"the model stays as it was, instead of {why}")
            return None
        shares = self.backend.shares(round, number, summed, updates)
        sent = self.population.down(updates.who[0], exchange)
        report.failures |= {k: share for k, share in shares.items() if isinstance(share, Failure)}
        report.up += nbytes({str(k): share for k, share in shares.items() if isinstance(share, Tensor)})
        report.sent |= {"w": tuple(sent["w"].shape)}
        mean, why = mean_of(mechanism, sent, shares)
        if mean is None:
            names = ", ".join(self.population.federation.sites[k] for k in updates.who)
            report.notes.append(f"the model stays as it was: {why} of {names}")
            return None
        return Updates(updates.who[:1], updates.n.sum()[None], mean)

    def _counts(self, who: tuple[int, ...]) -> Tensor:
        counts, device = self.population.counts, self.population.runtime.net.row.device
        return torch.tensor([counts[k] for k in who], device=device)

    def _ask(self, round: int, number: int, sites: tuple[int, ...], replies: dict[int, Reply]) -> dict[int, Failure]:
        """Ask sites, add their answers to `replies`, and return those that failed."""
        failures: dict[int, Failure] = {}
        self.state.make_room(sites)
        for k, reply in self.backend.ask(round, number, sites).items():
            if isinstance(reply, Unreadable):
                raise DataError(reply.reason)
            if isinstance(reply, Failure):
                failures[k] = reply
            else:
                replies[k] = reply
        return failures

    def _refuse_too_few(self, round: int, failures: Mapping[int, Failure], asked: int, answered: int) -> None:
        reasons = self.name_failures(failures)
        if failures and self.rounds.on_failure == "stop":
            raise ImperfedError(f"round {round + 1}: {reasons}")
        if answered < max(1, math.ceil(self.rounds.quorum * asked)):
            diverged = all(isinstance(failure, NotFinite) for failure in failures.values())
            cause = "the run has diverged: " if diverged else ""
            raise (DivergedError if diverged else QuorumError)(
                f"round {round + 1}: {cause}{answered} of {asked} sites answered, below the quorum "
                f"{self.rounds.quorum:g}. {reasons}"
            )

    def name_failures(self, failures: Mapping[int, Failure]) -> str:
        """Return a sentence that names the sites that failed and why."""
        names = self.population.federation.sites
        return "; ".join(f"{names[k]}: {failure.reason}" for k, failure in sorted(failures.items()))

    def everybody(self, replies: Mapping[int, Reply | Failure], when: str) -> list[Reply]:
        """Return all replies, or raise `QuorumError` with the names of the sites that failed."""
        if failed := {k: reply for k, reply in replies.items() if isinstance(reply, Failure)}:
            raise QuorumError(f"{when} every site must answer. {self.name_failures(failed)}")
        return [reply for reply in replies.values() if isinstance(reply, Reply)]

    def combined(self, query: Query, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Return the server's memory after a query before round 0, in which sites may differ in length or may not."""
        try:
            return query.aggregate(server, updates, context)
        except RuntimeError:  # of torch; only the method itself knows which lengths must be equal
            self.refuse_unlike(query, updates.parts, any_length=False, who=updates.who)
            raise

    def refuse_unlike(
        self, query: Query, parts: Sequence[Tree], any_length: bool, who: Sequence[int] | None = None
    ) -> None:
        """Raise `QuorumError` with the names of the sites whose answers do not go with the others'."""
        failed = check_parts(query, [self.state.servers[0]] * len(parts), parts, any_length)
        if failed := {k if who is None else who[k]: failure for k, failure in failed.items()}:
            raise QuorumError(f"before round 1 every site must answer. {self.name_failures(failed)}")

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


def refuse_misfits(
    algorithm: Algorithm,
    objective: Objective,
    local: Local,
    layout: Layout,
    federation: Federation,
    defence: Defence | None,
    on_duty: int,
    adversaries: Adversaries | None,
) -> None:
    """Refuse, before training, parts that do not fit together."""
    sums = any(isinstance(exchange, WeightedGradient) for exchange in algorithm.exchanges(0))
    if defence:
        if algorithm.pools_data or layout.shared == 0:
            raise UsageError(f"{defence.name} looks at what sites send; under {algorithm.name} they send nothing")
        defence.check(federation, algorithm, on_duty)
        if sums:
            raise UsageError(f"{defence.name} looks at each site's answer, and {algorithm.name} only sees their sum")
    if adversaries is not None and (algorithm.pools_data or layout.shared == 0 or sums):
        attack = adversaries.attack.name
        raise UsageError(f"{attack} falsifies the updates that sites send; under {algorithm.name} they send none")
    if sums and not objective.row_independent:
        raise UsageError(
            f"here {algorithm.name} makes one pass over the rows of all sites, and the loss of {objective.name} "
            "depends on which rows are together; choose another objective"
        )
    if local.weight_decay and sums:
        raise UsageError(f"local.weight_decay acts in local steps, and here {algorithm.name} makes none; set it to 0")


def for_all(local: Local, sites: int) -> Local:
    """Return how one site trains in the place of so many."""
    steps = {name: sites * getattr(local, name) for name in ("steps", "min_steps", "max_steps")}
    return replace(local, **steps)


def defence_memory(defence: Defence | None) -> Callable[[int], Tree]:
    """Return a function from a number of sites to the defence's first memory, named as in the server's memory."""
    return lambda sites: {} if defence is None else prefixed(DEFENCE, defence.init_state(sites))


def questions(defence: Defence | None, attribute: Attribute | None) -> tuple[Query, ...]:
    """Return what the defence asks the sites before round 0, with answers that go to its part of the memory."""
    return () if defence is None else tuple(q.on_part(DEFENCE) for q in defence.opening(attribute))


def _net(network: Network, layout: Layout) -> Net:
    return Net(copy.deepcopy(network).eval(), layout)
