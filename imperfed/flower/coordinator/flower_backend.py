"""Remote sites: they answer the engine by message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from imperfed import __version__
from imperfed.core.batch import Tree
from imperfed.core.errors import QuorumError
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.labels.validity import Validity
from imperfed.core.mechanism import Summed
from imperfed.core.threads import one_thread
from imperfed.engine.backends.base import Reply, stacked
from imperfed.engine.failures import Away, Failure, Misshapen, NotFinite, Silent
from imperfed.engine.population import Population, Scores, lowering
from imperfed.engine.seeds import on_duty_in
from imperfed.engine.site import OPENING
from imperfed.engine.validate import LARGEST_NUMBER, REFUSED, check_answer, check_shapes, check_size, largest_answer
from imperfed.flower.messages.charging import charged
from imperfed.flower.messages.payload import NO_EXCHANGE, Payload, Word, scores_of, validity_of
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.transport import Transport
from imperfed.flower.site.store import FIRST

ANSWERED = "answered"
"""In the coordinator's checkpoint: the exchange of each site's last accepted answer, [K, 2]."""


class FlowerBackend:
    """The sites over a network. The coordinator knows only in which exchange each site last changed its state.

    The metrics after a round and the first exchange of the next round share one message: nothing changes in between.
    """

    opens_on_device = False
    can_break = False  # a site that goes away is a failure of that site

    def __init__(
        self,
        transport: Transport,
        run_infos: Sequence[RunInfo],
        population: Population,
        on_duty: int,
    ) -> None:
        self.transport, self.run_infos = transport, run_infos
        self.population, self.on_duty = population, on_duty
        population.state.memory = {ANSWERED: torch.tensor([FIRST] * len(run_infos))}
        self.early: dict[tuple[int, int], dict[int, Payload | Failure]] = {}
        """Answers to an exchange that came with the metrics of the previous round."""
        self.validity: dict[int, Validity] = {}
        self.failed: dict[int, str] = {}
        """Why a site last failed."""
        self.took_part: set[int] = set()
        """The sites that have answered in some round."""
        self.turn = OPENING
        self.notes: list[str] = []
        # Two rounds back: a damaged checkpoint sends the coordinator to the one before it.
        self.turns = deque([population.state.memory[ANSWERED].clone()] * 3, maxlen=3)

    # -- what the engine calls ------------------------------------------------------------------------------------

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange."""
        exchange = self.population.spec.exchange(round, number)
        answers = self._answers(round, number, sites)
        replies = {k: charged(partial(self._reply, answer, exchange)) for k, answer in answers.items()}
        for k, reply in replies.items():
            if isinstance(reply, Failure):
                self.failed[k] = reply.reason
            answered = isinstance(reply, Reply) and not isinstance(exchange, Query)
            if answered or tuple(self._answered(k)) != FIRST:  # now, or before the run was resumed
                self.took_part.add(k)
            if isinstance(exchange, Train) and isinstance(reply, Reply):
                self.population.state.memory[ANSWERED][k] = torch.tensor((round, number))
        return replies

    def start(self) -> None:
        """Do nothing: the sites have their rows."""

    def together(self, who: Sequence[int], replies: Mapping[int, Reply]) -> Mapping[str, Tensor]:
        """Return the answers, one row per site."""
        return stacked(who, replies)

    def shares(self, round: int, number: int, summed: Summed, updates: Updates) -> dict[int, Tensor | Failure]:
        """Return the masked shares of the sites of a secret sum; a missing one leaves the others without meaning."""
        words: dict[str, Word] = {
            "round": round,
            "exchange": number,
            "sites": [self.transport.names[k] for k in summed.sites],
            "weights": list(summed.weights),
        }
        payloads = {k: self.run_infos[k].payload(words) for k in summed.sites}
        like = torch.zeros(self.population.spec.layout.shared, dtype=torch.int64)
        about = self.run_infos[0].about(f"round {round + 1}, sum")
        answers = self.transport.send("query.unite", payloads, about, largest_answer({"w": like}, 0))
        return {k: charged(partial(_share, answer, like)) for k, answer in answers.items()}

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Add up the sites' own mean gradients; the sum needs all of them."""
        answers = self.ask(round, number, sites)
        failed = {k: answer.reason for k, answer in answers.items() if isinstance(answer, Failure)}
        if failed:
            reasons = "; ".join(f"{self.transport.names[k]}: {reason}" for k, reason in sorted(failed.items()))
            raise QuorumError(f"the sum of gradients needs an answer from every site. {reasons}")
        replies = [answer for k in sites if isinstance(answer := answers[k], Reply)]
        total = sum((p * reply.up["g"] for p, reply in zip(weights, replies, strict=True)), torch.zeros(()))
        assert isinstance(total, Tensor)
        return total, torch.tensor([reply.loss for reply in replies])

    def evaluate(self, ahead: bool, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the metrics of every site that answers, and of the global model where there is one."""
        with one_thread():
            common = self.population.evaluate_global()
        measured = self.population.evaluator.sites or self.population.federation.validation
        return self._evaluate(self.population.state.round, ahead) if measured else {}, common

    def validate(self, sites: Sequence[int] | None = None) -> dict[int, Validity]:
        """Return what the sites reported, with their metrics, about the rows that they hold out."""
        return self.validity

    def gather(self) -> None:
        """Do nothing: what sites remember stays with them."""

    def scatter(self) -> None:
        """Do nothing: every message names the state to which it belongs."""

    def inferred_labels(self) -> Tensor | None:
        """Return None: the inferred labels stay at the sites."""
        return None

    def close(self) -> None:
        """Do nothing: a run does not shut down its sites."""

    def never_answered(self) -> dict[int, str]:
        """Return the sites that were asked in rounds of this run and failed in all of them, and why in the last one."""
        return {k: why for k, why in sorted(self.failed.items()) if k not in self.took_part}

    def with_models(self, words: Callable[[int], dict[str, Word]]) -> dict[int, Payload]:
        """Return a message to every site that has its present model, and says to which of its states this belongs.

        `words`: what else a site is told, by its number.
        """
        payloads = {}
        for k, run_info in enumerate(self.run_infos):
            own: dict[str, Word] = {"round": self.population.state.round, "from": self._answered(k)}
            payloads[k] = run_info.payload(own | words(k), {"model": self._model(k)})
        return payloads

    def rehearse(self) -> dict[int, str]:
        """Let every site do once what its first round needs, and keep nothing; return why some cannot."""
        payloads = {k: self._payload(k, 0, 0, evaluate=True) for k in range(len(self.run_infos))}
        payloads = {k: replace(one, words={**one.words, "version": __version__}) for k, one in payloads.items()}
        replies = self.transport.send("query.ready", payloads, "one step to try")
        missing = Away | Silent  # it says nothing about what the site can do
        return {k: r.reason for k, r in replies.items() if isinstance(r, Failure) and not isinstance(r, missing)}

    # -- messages -------------------------------------------------------------------------------------------------

    def _evaluate(self, round: int, ahead: bool) -> dict[int, Scores]:
        """Ask every site for metrics, and those on duty in the next round also for their first answer in it."""
        K = len(self.run_infos)
        duty = on_duty_in(self.population.spec.seed, round, K, self.on_duty) if ahead else ()
        self._turn(round)
        payloads = {k: self._payload(k, round, 0 if k in duty else NO_EXCHANGE, evaluate=True) for k in range(K)}
        about = f"round {round + 1}" if duty else "the end"
        replies = self.transport.send(
            "train" if duty else "evaluate", payloads, self.run_infos[0].about(about), self._limit(payloads)
        )
        # A site that is away now may be back when the round begins, and is asked again then.
        self.early = {(round, 0): {k: replies[k] for k in duty if not isinstance(replies[k], Away)}}
        metrics, self.validity = {}, {}
        held = self.population.federation.validation
        lowered = lowering(held.sizes() if held else [0] * K, self.population.max_share)
        for k, reply in replies.items():
            if isinstance(reply, Failure):
                continue
            told = charged(partial(self._figures, k, reply))
            if isinstance(told, Failure):
                why = told.reason.removeprefix(REFUSED)
                self.transport.tell(f"{self.transport.names[k]}: its metrics were refused: {why}")
            else:
                metrics[k], validity = told
                self.validity[k] = validity._replace(weight=validity.weight * lowered[k])
        return {k: scores for k, scores in metrics.items() if scores}

    def _figures(self, site: int, reply: Payload) -> tuple[Scores, Validity]:
        """Return the figures in a site's answer, which rest on no more rows and cells than the site has."""
        federation, tests = self.population.federation, self.transport.infos[self.transport.names[site]].tests
        classes, held = len(federation.classes), federation.validation
        cells = 0 if held is None else held.sizes()[site] * classes
        scores = scores_of(reply, max(tests, 0), self.population.evaluator.figure_names)
        return scores, validity_of(reply, cells, classes)

    def _answers(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Payload | Failure]:
        """Return the answers that came with the metrics, each once, and ask for all others."""
        self._turn(round)
        early = self.early.get((round, number), {})
        answers = {k: early.pop(k) for k in sites if k in early}
        payloads = {k: self._payload(k, round, number) for k in sites if k not in answers}
        trains = isinstance(self.population.spec.exchange(round, number), Train)
        about = "before round 1" if round == OPENING else f"round {round + 1}"
        kind, about = "train" if trains else "query.answer", self.run_infos[0].about(about)
        return answers | self.transport.send(kind, payloads, about, self._limit(payloads))

    def _limit(self, payloads: Mapping[int, Payload]) -> int:
        """Return the most bytes that one of these sites may answer with."""
        sizes = self.population.sizes
        return max((largest_answer(p.trees.get("down", {}), sizes[k]) for k, p in payloads.items()), default=0)

    def _payload(self, site: int, round: int, number: int, evaluate: bool = False) -> Payload:
        words: dict[str, Word] = {
            "round": round,
            "exchange": number,
            "evaluate": int(evaluate),
            "from": self._answered(site),
            "base": self.turns[0][site].tolist(),
            "best": self._best(site),
        }
        trees: dict[str, Tree] = {}
        if number != NO_EXCHANGE:
            trees["down"] = self.population.down(site, self.population.spec.exchange(round, number))
        if evaluate:
            model = self._model(site)
            if number == NO_EXCHANGE or any(not torch.equal(t, trees["down"][name]) for name, t in model.items()):
                trees["model"] = model
        return self.run_infos[site].payload(words, trees)

    def _answered(self, site: int) -> list[int]:
        """Return the exchange of a site's last accepted answer."""
        exchange: list[int] = self.population.state.memory[ANSWERED][site].tolist()
        return exchange

    def _best(self, site: int) -> list[int]:
        """Return the exchange after which a site was in its state of the best round, which it keeps; else the first."""
        best = self.population.state.best
        if best is None or not best.state:
            return list(FIRST)
        exchange: list[int] = best.state[f"memory/{ANSWERED}"][site].tolist()
        return exchange

    def _model(self, site: int) -> Tree:
        """Return the shared part of the model with which a site predicts."""
        w, buffers = self.population.shared_model(site)
        return {"w": w, "buffers": buffers}

    def _turn(self, round: int) -> None:
        """Note that a round begins. The coordinator may have to go back two checkpoints, but no further."""
        if round != self.turn:
            self.turn = round
            self.turns.append(self.population.state.memory[ANSWERED].clone())

    # -- answers --------------------------------------------------------------------------------------------------

    def _reply(self, answer: Payload | Failure, exchange: Exchange) -> Reply | Failure:
        """Check an answer before it is used: it is only a claim."""
        if isinstance(answer, Failure):
            return answer
        mechanism = self.population.spec.privacy
        if mechanism is not None and mechanism.sums:  # that it has trained is all that it says now
            return Reply(0.0, {})
        # With privacy no site tells its loss.
        loss, up = answer.real("loss") if mechanism is None else 0.0, answer.trees.get("up")
        if up is None:
            return Misshapen(f"{REFUSED}it holds no answer")
        if not abs(loss) <= LARGEST_NUMBER:
            return NotFinite(f"{REFUSED}its loss is {loss:g}")
        return check_answer(up, exchange, self.population.state.servers[0]) or check_size(up) or Reply(loss, up)


def _share(answer: Payload | Failure, like: Tensor) -> Tensor | Failure:
    """Return a site's share of a sum, if it has the right shape: masked, it says nothing more by itself."""
    if isinstance(answer, Failure):
        return answer
    share = answer.trees.get("share", {})
    return check_shapes(share, {"w": like}) or share["w"]
