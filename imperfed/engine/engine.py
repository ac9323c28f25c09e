"""The rounds of a run: who takes part, what is exchanged, who failed, what is recorded and when it is saved."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import ServerContext
from imperfed.core.errors import DivergedError, ImperfedError, QuorumError, UsageError
from imperfed.core.exchange import Exchange, Updates
from imperfed.core.federation import Federation
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.core.threads import one_thread
from imperfed.engine import site as at_site
from imperfed.engine.backends.base import Backend, Reply
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.backends.task_pool import Failure
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.engine.seeds import SERVER, on_duty_in, seeded
from imperfed.engine.server import GUARD, Server
from imperfed.engine.site import ModelEvaluator, RunSpec, Scores, SiteRuntime
from imperfed.engine.state import State, nbytes, shared

CPU = torch.device("cpu")
MakeBackend = Callable[[SiteRuntime, int, int], Backend]
"""Who answers for the sites, given the bench, the number of sites on duty, and the number of workers asked for."""


class Engine:
    """A run on one machine: made from its parts, advanced by `run`, closed at the end."""

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
    ) -> None:
        if algorithm.pools_data:
            local = replace(local, steps=local.steps * len(federation.sites))
            federation = federation.pooled()
        with seeded(seed, 0, SERVER, "build"):
            network = algorithm.build(copy.deepcopy(network))
            layout = Layout.of(network, algorithm.is_personal)
            if defence and (algorithm.pools_data or layout.shared == 0):
                raise UsageError(f"{defence.name} looks at what sites send; under {algorithm.name} they send nothing")
            row = layout.row(network)
            state = State.fresh(algorithm, objective, federation, layout, row, guard(defence))
        self.rounds = rounds
        self.sizes = federation.sizes()
        self.runtime = SiteRuntime(
            RunSpec(algorithm, objective, federation, layout, local, seed, evaluator), state, _net(network, layout)
        )
        self.server = Server(self.runtime, _net(network, layout), defence)
        self.on_duty = max(1, round(rounds.participation * len(self.sizes)))
        summed = any(e.weights for e in algorithm.exchanges(0))
        if defence:
            defence.check(federation, algorithm, self.on_duty)
        if defence and summed:
            raise UsageError(f"{defence.name} looks at each site's answer, and {algorithm.name} only sees their sum")
        if local.weight_decay and summed:
            raise UsageError(
                f"local.weight_decay acts in local steps, and here {algorithm.name} makes none; set it to 0"
            )
        self.figures: tuple[int, dict[int, Scores], Scores] | None = None
        """The round after which figures were last taken, and they."""
        self.backend: Backend = make_backend(self.runtime, self.on_duty, rounds.workers)
        self.before = self.open()
        if device != CPU:  # only then: opening exchanges may compute what no device but the host can
            self.runtime.move_to(device)
            self.server.net = Net(self.server.net.module.to(device), layout)

    def open(self) -> RoundReport:
        """The one-shot exchanges before round 0."""
        spec, state, report = self.runtime.spec, self.state, RoundReport(-1, (), {}, {})
        contexts, sites = self.server.contexts(-1), range(len(self.sizes))
        for number, exchange in enumerate(spec.algorithm.opening()):
            with one_thread():
                parts = self.backend.ask_opening(number)
                updates = Updates(tuple(sites), torch.tensor(self.sizes).float(), {}, parts)
                for g, context in enumerate(contexts):
                    if mine := self.server.of_group(updates, g):
                        server = exchange.aggregate(dict(state.servers[g]), mine, context)
                        state.servers[g] = {name: shared(t) for name, t in server.items()}
            report.down += sum(nbytes(self.runtime.down(k, opening=True)) for k in sites)
            report.up += sum(map(nbytes, parts))
            report.sent |= {name: tuple(t.shape) for part in parts for name, t in part.items()}
        report.notes += [note for context in contexts for note in context.notes]
        return report

    @property
    def state(self) -> State:
        """All that the run remembers."""
        return self.runtime.state

    def run(self, watch: Callable[[RoundReport], None], stop: Callable[[], bool], checkpoint: Path | None) -> bool:
        """Go on to the last round. False if `stop` asked for an earlier end; then a checkpoint has been written."""
        while self.state.round < self.rounds.rounds:
            began = time.perf_counter()
            report = self.round(self.state.round)
            report.seconds = time.perf_counter() - began
            self.state.round += 1
            last, stopped = self.state.round == self.rounds.rounds, stop()
            if last or self.state.round % self.rounds.evaluate_every == 0:
                report.personal, report.common = self.evaluate()
            watch(report)
            if checkpoint and (last or stopped or self.state.round % self.rounds.checkpoint_every == 0):
                self.state.save(checkpoint)
            if stopped and not last:
                return False
        return True

    def sample(self, round: int) -> tuple[int, ...]:
        """The sites on duty in this round, in order."""
        return on_duty_in(self.runtime.spec.seed, round, len(self.sizes), self.on_duty)

    def round(self, round: int) -> RoundReport:
        """All exchanges of one round."""
        report = RoundReport(round, self.sample(round), {}, {})
        if round == 0:
            report.down, report.up, report.sent = self.before.down, self.before.up, dict(self.before.sent)
            report.notes += self.before.notes
        contexts = self.server.contexts(round)
        for number, exchange in enumerate(self.runtime.spec.algorithm.exchanges(round)):
            if exchange.weights is not None:
                updates = self.together(exchange, exchange.weights, report, contexts[0])
            else:
                with one_thread():
                    updates = self.exchange(round, number, exchange, report)
            with one_thread():
                self.server.take(exchange, updates, contexts)
        report.notes += [*self.backend.notes, *(note for context in contexts for note in context.notes)]
        self.backend.notes.clear()
        report.verdicts = self.server.suspicions(contexts)
        return report

    def together(
        self, exchange: Exchange, weigh: Callable[[Tensor], Tensor], report: RoundReport, context: ServerContext
    ) -> Updates:
        """The weighted sum of the gradients of the sites on duty."""
        server, who = self.state.server, report.who
        n = self._counts(who)
        g, losses = self.backend.weighted_gradient(who, weigh(n))
        report.losses = dict(zip(who, losses.tolist(), strict=True))
        whole = server["w"].numel() + server["buffers"].numel()
        down, up = exchange.traffic(server, context) if exchange.traffic else (whole, whole)
        report.down += len(who) * down * g.element_size()
        report.up += len(who) * up * g.element_size()
        report.sent |= {"g": (up,)}
        return Updates(who, n, {"g": g.unsqueeze(0)})

    def exchange(self, round: int, number: int, exchange: Exchange, report: RoundReport) -> Updates:
        """Ask the sites on duty, deal with those that fail, and stack the answers."""
        asked = tuple(k for k in report.who if k not in report.failures)
        replies: dict[int, Reply] = {}
        failures = self._ask(round, number, asked, replies)
        for _ in range(self.rounds.retries if self.rounds.on_failure == "retry" else 0):
            failures = self._ask(round, number, tuple(failures), replies) if failures else failures
        failures |= unlike_the_others(replies)
        who = tuple(k for k in asked if k not in failures)
        self._judge_failures(round, failures, len(report.who), len(who))
        report.failures |= failures
        trees = {name: torch.stack([replies[k].up[name] for k in who]) for name in replies[who[0]].up}
        if exchange.trains:
            report.losses = {k: replies[k].loss for k in who}
        report.down += sum(nbytes(self.runtime.down(k)) for k in asked)
        report.up += nbytes(trees)
        report.sent |= {name: tuple(t.shape[1:]) for name, t in trees.items() if t.numel()}
        return Updates(who, self._counts(who), trees)

    def _counts(self, who: tuple[int, ...]) -> Tensor:
        return torch.tensor([float(self.sizes[k]) for k in who], device=self.runtime.net.row.device)

    def _ask(self, round: int, number: int, sites: tuple[int, ...], replies: dict[int, Reply]) -> dict[int, str]:
        """Why sites failed, by their numbers; the others' answers join `replies`."""
        failures = {}
        for k, reply in self.backend.ask(round, number, sites).items():
            if isinstance(reply, Failure):
                failures[k] = reply.reason
            else:
                replies[k] = reply
        return failures

    def _judge_failures(self, round: int, failures: dict[int, str], asked: int, answered: int) -> None:
        names = self.runtime.spec.federation.sites
        told = "; ".join(f"{names[k]}: {reason}" for k, reason in sorted(failures.items()))
        if failures and self.rounds.on_failure == "stop":
            raise ImperfedError(f"round {round + 1}: {told}")
        if answered < max(1, math.ceil(self.rounds.quorum * asked)):
            diverged = all(reason.endswith("is not finite") for reason in failures.values())
            what = "the run has diverged: " if diverged else ""
            raise (DivergedError if diverged else QuorumError)(
                f"round {round + 1}: {what}{answered} of {asked} sites answered, below the quorum "
                f"{self.rounds.quorum:g}. {told}"
            )

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site's model, and of the global one where there is one; taken once after a round."""
        if self.figures is None or self.figures[0] != self.state.round:
            self.figures = (self.state.round, *self.backend.evaluate())
        return self.figures[1:]

    def inferred_labels(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row; None where none are worked out."""
        return self.backend.inferred_labels()

    def model(self, site: int) -> Tree:
        """The named tensors of the model with which a site predicts."""
        row = at_site.load_model(self.runtime, site).row
        return {name: t.clone() for name, t in self.runtime.spec.layout.tree(row).items()}

    @property
    def personalised(self) -> bool:
        """Whether sites predict with models of their own."""
        spec = self.runtime.spec
        own = type(spec.algorithm).model is not Algorithm.model
        return own or self.state.personal.shape[1] > 0 or len(self.state.servers) > 1

    def shared_model(self) -> Tree:
        """The named tensors that all sites share; none where there are several models at the server."""
        spec = self.runtime.spec
        if len(self.state.servers) > 1 or not spec.algorithm.has_global_model:
            return {}
        server = self.state.server
        row = spec.layout.join(server["w"], server["buffers"], self.state.personal[0])
        return {name: t.clone() for name, t in spec.layout.tree(row).items() if not spec.algorithm.is_personal(name)}

    def close(self) -> None:
        """Let everybody go."""
        self.backend.close()


def guard(defence: Defence | None) -> Callable[[int], Tree]:
    """What a defence remembers of so many sites, by the names it has in the server's memory."""
    return lambda sites: {} if defence is None else {f"{GUARD}{n}": t for n, t in defence.init_state(sites).items()}


def _net(network: Network, layout: Layout) -> Net:
    return Net(copy.deepcopy(network).eval(), layout)


def unlike_the_others(replies: dict[int, Reply]) -> dict[int, str]:
    """The sites whose answers have other names or shapes than most: they cannot be stacked."""
    shapes = {k: tuple((name, tuple(t.shape)) for name, t in sorted(replies[k].up.items())) for k in sorted(replies)}
    usual = Counter(shapes.values()).most_common(1)[0][0] if shapes else ()
    return {
        k: f"its answer was refused: {dict(mine)} differs from the others' {dict(usual)}"
        for k, mine in shapes.items()
        if mine != usual
    }
