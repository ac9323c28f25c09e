"""The rounds of a run: who takes part, what is exchanged, who failed, what is recorded and when it is saved."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed.auxiliary import Defence
from imperfed.core import Algorithm, Exchange, Hall, Objective, Tree, Updates
from imperfed.descend import Local
from imperfed.engine import post
from imperfed.engine import site as at_site
from imperfed.engine.course import Report, Rounds
from imperfed.engine.crew import Crew, Failure, Task, cores, crew
from imperfed.engine.seeds import SERVER, generator, seeded
from imperfed.engine.server import GUARD, Server
from imperfed.engine.site import Bench, Job, Judge, Scores
from imperfed.engine.stack import stackable
from imperfed.engine.state import State, nbytes, shared
from imperfed.engine.together import weighted_gradient
from imperfed.errors import DivergedError, ImperfedError, QuorumError, UsageError
from imperfed.federation import Federation
from imperfed.network import Layout, Net, Network
from imperfed.threads import one_thread


class Engine:
    """A run on one machine: made from its parts, advanced by `run`, closed at the end."""

    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective,
        network: Network,
        federation: Federation,
        judge: Judge,
        local: Local,
        rounds: Rounds,
        seed: int,
        defence: Defence | None = None,
    ) -> None:
        if algorithm.gathers:
            local = replace(local, steps=local.steps * len(federation.sites))
            federation = federation.pooled()
        with seeded(seed, 0, SERVER, "build"):
            network = algorithm.build(copy.deepcopy(network))
            layout = Layout.of(network, algorithm.stays)
            if defence and (algorithm.gathers or layout.shared == 0):
                raise UsageError(f"{defence.name} looks at what sites send; under {algorithm.name} they send nothing")
            row = layout.row(network)
            state = State.fresh(algorithm, objective, federation, layout, row, guard(defence))
        self.rounds = rounds
        self.sizes = federation.sizes()
        self.bench = Bench(
            Job(algorithm, objective, federation, layout, local, seed, judge), state, _net(network, layout)
        )
        self.server = Server(self.bench, _net(network, layout), defence)
        self.on_duty = max(1, round(rounds.participation * len(self.sizes)))
        exchanges = algorithm.exchanges(0)
        if defence:
            defence.suits(federation)
        if defence and not all(e.trains or e.answer for e in exchanges):
            raise UsageError(f"{defence.name} looks at each site's answer, and {algorithm.name} only sees their sum")
        places = self.on_duty if any(e.trains for e in exchanges) else 0
        self.uploads = {name: shared(state.servers[0][name].expand(places, -1)) for name in ("w", "buffers")}
        self.stacks = stackable(self.bench.job, network)
        self.before = self.open()
        self.crew: Crew = crew(post.Post(self.bench, self.uploads), self._workers())

    def open(self) -> Report:
        """The one-shot exchanges before round 0, in the calling process: workers see what is there when they start."""
        job, state, report = self.bench.job, self.state, Report(-1, (), {}, {})
        halls = self.server.halls(-1)
        for exchange in job.algorithm.opening():
            assert exchange.answer is not None
            sites = range(len(self.sizes))
            with one_thread():
                seated = self._same_for_all()
                parts = tuple(at_site.consult(self.bench, -1, k, exchange, exchange.answer, seated).up for k in sites)
                updates = Updates(tuple(sites), torch.tensor(self.sizes).float(), {}, parts)
                for g, hall in enumerate(halls):
                    if mine := self.server.of_group(updates, g):
                        server = exchange.gather(dict(state.servers[g]), mine, hall)
                        state.servers[g] = {name: shared(t) for name, t in server.items()}
            report.down += sum(nbytes(self.bench.down(k, opening=True)) for k in sites)
            report.up += sum(map(nbytes, parts))
            report.sent |= {name: tuple(t.shape) for part in parts for name, t in part.items()}
        report.notes += [note for hall in halls for note in hall.notes]
        return report

    def _same_for_all(self) -> Net | None:
        """The network at the first weights where all sites receive the same and none can change it: loaded once."""
        layout = self.bench.job.layout
        if layout.size > layout.shared or len(self.state.servers) > 1:
            return None
        return self.bench.take_place(0, self.state.server["w"], self.state.server["buffers"])

    def _workers(self) -> int:
        return min(self.rounds.workers or cores(), max(self.on_duty, self.bench.job.judge.sites))

    @property
    def state(self) -> State:
        """All that the run remembers."""
        return self.bench.state

    def run(self, watch: Callable[[Report], None], stop: Callable[[], bool], checkpoint: Path | None) -> bool:
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
        draw = generator(self.bench.job.seed, round, SERVER, "sample")
        return tuple(sorted(torch.randperm(len(self.sizes), generator=draw)[: self.on_duty].tolist()))

    def round(self, round: int) -> Report:
        """All exchanges of one round."""
        report = Report(round, self.sample(round), {}, {})
        if round == 0:
            report.down, report.up, report.sent = self.before.down, self.before.up, dict(self.before.sent)
            report.notes += self.before.notes
        halls = self.server.halls(round)
        for number, exchange in enumerate(self.bench.job.algorithm.exchanges(round)):
            if exchange.weigh is not None:
                updates = self.together(exchange, exchange.weigh, report, halls[0])
            else:
                with one_thread():
                    updates = self.exchange(round, number, exchange, report)
            with one_thread():
                self.server.take(exchange, updates, halls)
        report.notes += [note for hall in halls for note in hall.notes]
        report.suspicions = self.server.suspicions(halls)
        return report

    def together(self, exchange: Exchange, weigh: Callable[[Tensor], Tensor], report: Report, hall: Hall) -> Updates:
        """The weighted sum of the gradients of the sites on duty, in one pass, without a copy of the model a site."""
        server, who = self.state.server, report.who
        n = torch.tensor([float(self.sizes[k]) for k in who])
        net = self.bench.take_place(0, server["w"], server["buffers"])
        g, losses = weighted_gradient(self.bench.job, net, self.state.rows, who, weigh(n))
        report.losses = dict(zip(who, losses.tolist(), strict=True))
        whole = server["w"].numel() + server["buffers"].numel()
        down, up = exchange.traffic(server, hall) if exchange.traffic else (whole, whole)
        report.down += len(who) * down * g.element_size()
        report.up += len(who) * up * g.element_size()
        report.sent |= {"g": (up,)}
        return Updates(who, n, {"g": g.unsqueeze(0)})

    def exchange(self, round: int, number: int, exchange: Exchange, report: Report) -> Updates:
        """Ask the sites on duty, deal with those that fail, and stack the answers."""
        asked = tuple(k for k in report.who if k not in report.failures)
        slots = {k: slot for slot, k in enumerate(asked)}
        longest_first = sorted(asked, key=lambda k: -self.sizes[k])
        answers: dict[int, tuple[float, dict[str, Any]]] = {}
        failures = self._ask(round, number, longest_first, slots, answers)
        for _ in range(self.rounds.retries if self.rounds.on_failure == "retry" else 0):
            failures = self._ask(round, number, list(failures), slots, answers) if failures else failures
        failures |= unlike_the_others(answers)
        who = tuple(k for k in asked if k not in failures)
        self._judge_failures(round, failures, len(report.who), len(who))
        report.failures |= failures
        trees = {name: torch.stack([torch.from_numpy(answers[k][1][name]) for k in who]) for name in answers[who[0]][1]}
        if exchange.trains:
            report.losses = {k: answers[k][0] for k in who}
            rows = torch.tensor([slots[k] for k in who])
            trees = {name: t[rows] for name, t in self.uploads.items()} | trees
        report.down += sum(nbytes(self.bench.down(k)) for k in asked)
        report.up += nbytes(trees)
        report.sent |= {name: tuple(t.shape[1:]) for name, t in trees.items() if t.numel()}
        return Updates(who, torch.tensor([float(self.sizes[k]) for k in who]), trees)

    def _ask(
        self, round: int, number: int, sites: list[int], slots: dict[int, int], answers: dict[int, Any]
    ) -> dict[int, str]:
        failures = {}
        trains = self.bench.job.algorithm.exchanges(round)[number].trains
        shares = self._shares(sites) if trains and self.stacks else [(k,) for k in sites]
        tasks: list[Task] = [(post.respond, (round, number, share, [slots[k] for k in share])) for share in shares]
        for task, result in self.crew.run(tasks):
            results = [result] * len(shares[task]) if isinstance(result, Failure) else result
            for k, one in zip(shares[task], results, strict=True):
                if isinstance(one, Failure):
                    failures[k] = one.reason
                else:
                    answers[k] = one
        return failures

    def _shares(self, sites: list[int]) -> list[tuple[int, ...]]:
        """Sites that are trained in one program. Cut by the machine's cores: the number of workers changes nothing."""
        size, in_order = -(-self.on_duty // cores()), sorted(sites)
        return [tuple(in_order[a : a + size]) for a in range(0, len(sites), size)]

    def _judge_failures(self, round: int, failures: dict[int, str], asked: int, answered: int) -> None:
        names = self.bench.job.federation.sites
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
        """Figures of every site's model, and of the global one where there is one."""
        sites = range(self.bench.job.judge.sites)
        tasks: list[Task] = [(post.evaluate, (k,)) for k in sites]
        results = self._all([*tasks, (post.evaluate_common, ())])
        return {k: results[k] for k in sites}, results[len(sites)]

    def beliefs(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row; None where none are worked out."""
        parts = self._all([(post.believe, (k,)) for k in range(len(self.sizes))])
        if parts[0] is None:
            return None
        return torch.cat([torch.from_numpy(part) for part in parts])

    def _all(self, tasks: list[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        for number, result in self.crew.run(tasks):
            if isinstance(result, Failure):
                raise ImperfedError(f"evaluation failed: {result.reason}")
            results[number] = result
        return results

    def model(self, site: int) -> Tree:
        """The named tensors of the model with which a site predicts."""
        row = at_site.load_model(self.bench, site).row
        return {name: t.clone() for name, t in self.bench.job.layout.tree(row).items()}

    @property
    def personalised(self) -> bool:
        """Whether sites predict with models of their own."""
        job = self.bench.job
        own = type(job.algorithm).model is not Algorithm.model
        return own or self.state.personal.shape[1] > 0 or len(self.state.servers) > 1

    def shared_model(self) -> Tree:
        """The named tensors that all sites share; none where there are several groups."""
        if len(self.state.servers) > 1:
            return {}
        job, server = self.bench.job, self.state.server
        row = job.layout.join(server["w"], server["buffers"], self.state.personal[0])
        return {name: t.clone() for name, t in job.layout.tree(row).items() if not job.algorithm.stays(name)}

    def close(self) -> None:
        """Let the workers go."""
        self.crew.close()


def guard(defence: Defence | None) -> Callable[[int], Tree]:
    """What a defence remembers of so many sites, by the names it has in the server's memory."""
    return lambda sites: {} if defence is None else {f"{GUARD}{n}": t for n, t in defence.open(sites).items()}


def _net(network: Network, layout: Layout) -> Net:
    return Net(copy.deepcopy(network).eval(), layout)


def unlike_the_others(answers: dict[int, tuple[float, dict[str, Any]]]) -> dict[int, str]:
    """The sites whose further answers have other names or shapes than most: they cannot be stacked."""
    shapes = {k: tuple(sorted((name, t.shape) for name, t in answers[k][1].items())) for k in sorted(answers)}
    usual = max(shapes.values(), key=list(shapes.values()).count, default=())
    return {
        k: f"its answer was refused: {dict(mine)} differs from the others' {dict(usual)}"
        for k, mine in shapes.items()
        if mine != usual
    }
