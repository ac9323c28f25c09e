"""Who answers for the sites when they are elsewhere: the sites themselves, by message."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import QuorumError
from imperfed.core.exchange import Exchange
from imperfed.core.threads import one_thread
from imperfed.engine import site as at_site
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.task_pool import Failure
from imperfed.engine.schedule import Rounds
from imperfed.engine.seeds import on_duty_in
from imperfed.engine.site import Scores, SiteRuntime
from imperfed.flower.messages.payload import Payload, RefusedError, Word, scores_of
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.transport import AWAY, Transport
from imperfed.flower.site.handlers import NO_EXCHANGE, OPENING
from imperfed.flower.site.store import FIRST

ANSWERED = "answered"
"""In the coordinator's checkpoint: the exchange in which each site's answer was last taken, [K, 2]."""


class FlowerBackend:
    """The sites over a network. Of what they remember the coordinator knows only in which exchange they last did.

    Figures after a round and the first exchange of the next round travel in one message: nothing changes in between.
    """

    def __init__(
        self, transport: Transport, run_infos: Sequence[RunInfo], rounds: Rounds, runtime: SiteRuntime, on_duty: int
    ) -> None:
        self.mail, self.charters, self.rounds = transport, run_infos, rounds
        self.bench, self.on_duty = runtime, on_duty
        runtime.state.memory = {ANSWERED: torch.tensor([FIRST] * len(run_infos))}
        self.ahead: dict[tuple[int, int], dict[int, Payload | Failure]] = {}
        self.turn = OPENING
        self.notes: list[str] = []
        self.recent = self.base = runtime.state.memory[ANSWERED].clone()

    # -- what the engine asks -------------------------------------------------------------------------------------

    def ask_opening(self, number: int) -> tuple[Tree, ...]:
        """Every site's answer to an opening exchange; without all of them there is no run."""
        sites = range(len(self.charters))
        payloads = {k: self._letter(k, OPENING, number, self.bench.down(k, opening=True)) for k in sites}
        given = self.mail.send("query.answer", payloads, "before round 1")
        return tuple(reply.up for reply in self._all(given, None, "before round 1"))

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """The answers to an exchange of a round."""
        exchange = self.bench.spec.algorithm.exchanges(round)[number]
        replies = {k: self._reply(given, exchange) for k, given in self._given(round, number, sites).items()}
        for k, reply in replies.items():
            if exchange.trains and isinstance(reply, Reply):
                self.bench.state.memory[ANSWERED][k] = torch.tensor((round, number))
        return replies

    def weighted_gradient(self, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """The sites' own mean gradients, added up here; without all of them the sum would be another."""
        round = self.bench.state.round
        given = self._given(round, 0, sites)
        replies = self._all({k: given[k] for k in sites}, self.bench.spec.algorithm.exchanges(round)[0], "the sum")
        total = sum((p * reply.up["g"] for p, reply in zip(weights, replies, strict=True)), torch.zeros(()))
        assert isinstance(total, Tensor)
        return total, torch.tensor([reply.loss for reply in replies])

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site that answers, and of the global model where there is one."""
        with one_thread():
            common = at_site.evaluate_common(self.bench)
        return self._evaluate(self.bench.state.round) if self.bench.spec.evaluator.sites else {}, common

    def inferred_labels(self) -> Tensor | None:
        """None: the labels worked out stay where they were."""
        return None

    def close(self) -> None:
        """The sites stay; a run does not end them."""

    def leave(self) -> dict[int, str]:
        """Give every site its last model, of which it makes its own report; why some could not, by their numbers."""
        payloads = {}
        for k, run_info in enumerate(self.charters):
            words: dict[str, Word] = {"round": self.bench.state.round, "from": self._answered(k)}
            payloads[k] = run_info.payload(words, {"model": self._model(k)})
        given = self.mail.send("query.leave", payloads, "the end")
        return {k: one.reason for k, one in given.items() if isinstance(one, Failure)}

    # -- messages -------------------------------------------------------------------------------------------------

    def _evaluate(self, round: int) -> dict[int, Scores]:
        """Ask every site for figures, and those on duty in the round to come also for their first answer in it."""
        K = len(self.charters)
        duty = on_duty_in(self.bench.spec.seed, round, K, self.on_duty) if round < self.rounds.rounds else ()
        self._turn(round)
        payloads = {k: self._letter(k, round, 0 if k in duty else NO_EXCHANGE, evaluate=True) for k in range(K)}
        given = self.mail.send("train" if duty else "evaluate", payloads, f"round {round + 1}" if duty else "the end")
        # Who is away now may be back when the round begins, and is asked then.
        self.ahead = {(round, 0): {k: given[k] for k in duty if given[k] != AWAY}}
        figures = {}
        for k, payload in given.items():
            try:
                figures[k] = {} if isinstance(payload, Failure) else scores_of(payload)
            except RefusedError as error:
                self.mail.tell(f"{self.mail.names[k]}: its figures were refused: {error}")
        return {k: scores for k, scores in figures.items() if scores}

    def _given(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Payload | Failure]:
        """Answers that came with the figures, once; all others are asked for."""
        self._turn(round)
        early = self.ahead.get((round, number), {})
        given = {k: early.pop(k) for k in sites if k in early}
        payloads = {k: self._letter(k, round, number) for k in sites if k not in given}
        trains = self.bench.spec.algorithm.exchanges(round)[number].trains
        return given | self.mail.send("train" if trains else "query.answer", payloads, f"round {round + 1}")

    def _letter(self, site: int, round: int, number: int, down: Tree | None = None, evaluate: bool = False) -> Payload:
        words: dict[str, Word] = {
            "round": round,
            "exchange": number,
            "evaluate": int(evaluate),
            "from": self._answered(site),
            "base": self.base[site].tolist(),
        }
        trees: dict[str, Tree] = {}
        if number != NO_EXCHANGE:
            trees["down"] = self.bench.down(site) if down is None else down
        if evaluate:
            model = self._model(site)
            if number == NO_EXCHANGE or any(not torch.equal(t, trees["down"][name]) for name, t in model.items()):
                trees["model"] = model
        return self.charters[site].payload(words, trees)

    def _answered(self, site: int) -> list[int]:
        """The exchange in which a site's answer was last taken."""
        found: list[int] = self.bench.state.memory[ANSWERED][site].tolist()
        return found

    def _model(self, site: int) -> Tree:
        """The shared part of the model with which a site predicts."""
        group, place = self.bench.spec.groups.homes[site]
        w, buffers = self.bench.spec.algorithm.model(self.bench.state.servers[group], place)
        return {"w": w, "buffers": buffers}

    def _turn(self, round: int) -> None:
        """Note that a round begins. The coordinator may have to go back to the round before it, but no further."""
        if round != self.turn:
            self.turn, self.base, self.recent = round, self.recent, self.bench.state.memory[ANSWERED].clone()

    # -- answers --------------------------------------------------------------------------------------------------

    def _all(self, given: dict[int, Payload | Failure], exchange: Exchange | None, what: str) -> list[Reply]:
        replies = {k: self._reply(payload, exchange) for k, payload in given.items()}
        failed = {k: reply.reason for k, reply in replies.items() if isinstance(reply, Failure)}
        if failed:
            told = "; ".join(f"{self.mail.names[k]}: {reason}" for k, reason in sorted(failed.items()))
            raise QuorumError(f"{what} needs the answer of every site. {told}")
        return [reply for reply in replies.values() if isinstance(reply, Reply)]

    def _reply(self, given: Payload | Failure, exchange: Exchange | None) -> Reply | Failure:
        """An answer is a claim: its shapes and numbers are looked at before anybody uses them."""
        if isinstance(given, Failure):
            return given
        try:
            loss, fault = given.real("loss"), self._fault(given, exchange)
        except RefusedError as error:
            loss, fault = 0.0, str(error)
        return Failure(f"its answer was refused: {fault}") if fault else Reply(loss, given.trees["up"])

    def _fault(self, given: Payload, exchange: Exchange | None) -> str | None:
        up, server = given.trees.get("up"), self.bench.state.servers[0]
        if up is None:
            return "it holds no answer"
        wanted: Tree = {}
        if exchange is not None and exchange.trains:
            wanted = {name: server[name] for name in ("w", "buffers")}
        elif exchange is not None and exchange.weights is not None:
            wanted = {"g": server["w"]}
        for name, like in wanted.items():
            if name not in up:
                return f"{name!r} is missing"
            if up[name].shape != like.shape or up[name].dtype != like.dtype:
                return f"{name!r} has shape {tuple(up[name].shape)}, expected {tuple(like.shape)}"
        return next((f"{name!r} is not finite" for name, t in up.items() if not torch.isfinite(t).all()), None)
