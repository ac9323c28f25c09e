"""A site: it answers messages from its own rows, keeps what is its own, and writes down what leaves it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from datetime import datetime

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from imperfed.core.batch import Tree
from imperfed.engine import site as at_site
from imperfed.engine.schedule import RoundReport
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.core.errors import DataError, ImperfedError
from imperfed.flower import repair
from imperfed.flower.messages.run_info import RunInfo, info_payload
from imperfed.flower.site.site_results import finish
from imperfed.flower.site.runtime import LocalSite, RemoteRuntime, load_runtime
from imperfed.flower.site.store import Key
from imperfed.flower.messages.payload import FAILED, Payload, RefusedError, Word, pack, scores_words, size, unpack
from imperfed.results.folder import RunFolder
from imperfed.results.metrics import metrics
from imperfed.core.threads import one_thread

OPENING = -1
"""The round of exchanges before round 0."""
NO_EXCHANGE = -1
"""The number of the exchange in a message that only asks for figures."""

FEWEST = 10
"""Rows that must stand behind sums that leave a site."""

Handler = Callable[[LocalSite, Payload], Payload]


def hello(place: LocalSite, payload: Payload) -> Payload:
    """Who the site is and what it holds, in numbers that are of no single row."""
    run_info = RunInfo.of(payload)
    config = run_info.config()
    info = place.holding(config, run_info.declaration).info(config.split.standardise)
    if info.sums and info.rows < FEWEST:
        raise RefusedError(
            f"{place.name} has {info.rows} rows; sums of fewer than {FEWEST} say too much of each of them"
        )
    return info_payload(info)


def answer(place: LocalSite, payload: Payload) -> Payload:
    """The answer to one exchange, figures of the model received, or both: one message for what a round needs."""
    run_info, down = RunInfo.of(payload), payload.trees.get("down", {})
    round, number = payload.number("round"), payload.number("exchange")
    store = place.store(run_info.run)
    runtime = load_runtime(place, run_info, down, _key(payload, "from"))
    report, words = RoundReport(round, (runtime.index,), {}, {}), dict[str, Word]()
    trees: dict[str, Tree] = {}
    if payload.number("evaluate"):
        model = payload.trees.get("model") or down
        net = runtime.load_site(runtime.index, model["w"], model["buffers"])
        scores = runtime.spec.evaluator.site(runtime.index, net)
        words |= scores_words(scores)
        keep_figures(place, run_info, RoundReport(round - 1, (), {}, {}, personal={runtime.index: scores}))
    if number != NO_EXCHANGE:
        words["loss"], trees["up"] = loss, up = exchange(runtime, round, number)
        if round != OPENING and runtime.spec.algorithm.exchanges(round)[number].trains:
            store.save((round, number), runtime.remembered())
            report.losses[runtime.index] = loss
        report.sent = {name: tuple(t.shape) for name, t in up.items() if t.numel()}
        keep_figures(place, run_info, report)
    store.forget_before(_key(payload, "base"))
    return Payload(words, trees)


def keep_figures(place: LocalSite, run_info: RunInfo, report: RoundReport) -> None:
    """The site's own lines of `metrics.jsonl`; of an exchange that is asked for twice the last ones count."""
    folder, names = RunFolder(place.state / run_info.run), (run_info.index + 1) * (place.name,)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.append(line for line in metrics(report, names, names) if not line["metric"].startswith("bytes/"))


def leave(place: LocalSite, payload: Payload) -> Payload:
    """The end of a run: the site writes what is its own."""
    run_info, model = RunInfo.of(payload), payload.trees["model"]
    return finish(place, run_info, _key(payload, "from"), model, payload.number("round"))


def exchange(runtime: RemoteRuntime, round: int, number: int) -> tuple[float, Tree]:
    """The loss and what is sent; what is kept is in the seat's state afterwards."""
    algorithm, k = runtime.spec.algorithm, runtime.index
    if round == OPENING:
        opening = algorithm.opening()[number]
        assert opening.respond is not None
        return 0.0, at_site.consult(runtime, OPENING, k, opening, opening.respond).up
    if algorithm.exchanges(round)[number].weights is not None:
        net = runtime.load_site(k, runtime.received["w"], runtime.received["buffers"])
        g, losses = weighted_gradient(runtime.spec, net, runtime.state.rows, Route.of(runtime.spec, [k]), torch.ones(1))
        return float(losses[0]), {"g": g}
    given = at_site.respond(runtime, round, number, k)
    if fault := given.fault(runtime.state):
        raise RefusedError(f"its answer was refused: {fault}")
    given.keep(runtime, k)
    return given.loss, given.up


def _key(payload: Payload, name: str) -> Key:
    round, number = payload.several(name)
    return int(round), int(number)


HANDLERS: dict[str, Handler] = {
    "query.hello": hello,
    "query.repair": repair.step,
    "query.mend": repair.mend,
    "query.answer": answer,
    "train": answer,
    "evaluate": answer,
    "query.leave": leave,
}


def handle(place: LocalSite, kind: str, records: RecordDict) -> Payload:
    """A handler's answer, or why there is none; a reason that could quote a row stays in the site's own log."""
    try:
        with one_thread():
            return HANDLERS[kind](place, unpack(records))
    except Exception as error:
        place.log(f"{_now()} {kind}: {traceback.format_exc().rstrip()}")
        open_words = isinstance(error, ImperfedError) and not isinstance(error, DataError)
        return Payload({FAILED: str(error) if open_words else f"{type(error).__name__}; its log says why"})


def make_app(place_of: Callable[[Mapping[str, object]], LocalSite]) -> ClientApp:
    """The app of a site, given how its place of work follows from the node's configuration."""
    app = ClientApp()

    def reply(message: Message, context: Context) -> Message:
        place, kind = place_of(context.node_config), message.metadata.message_type
        given = handle(place, kind, message.content)
        content = pack(given)
        place.log(
            f"{_now()} {kind} {message.metadata.group_id}: received {size(message.content)} bytes, "
            f"sent {size(content)}: {', '.join(given.told())}"
        )
        return Message(content, reply_to=message)

    for kind in HANDLERS:
        category, _, action = kind.partition(".")
        register = getattr(app, category)
        register(*([action] if action else []))(reply)
    return app


def _now() -> str:
    return datetime.now().isoformat(timespec="seconds")
