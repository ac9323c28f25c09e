"""A site: it answers messages from its own rows, keeps what is its own, and writes down what leaves it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from datetime import datetime

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from imperfed.core import Tree
from imperfed.engine import site as at_site
from imperfed.engine.course import Report
from imperfed.engine.together import Route, weighted_gradient
from imperfed.errors import DataError, ImperfedError
from imperfed.flower import repair
from imperfed.flower.charter import Charter, card_letter
from imperfed.flower.outcome import finish
from imperfed.flower.seat import Place, Seat, take_seat
from imperfed.flower.store import Key
from imperfed.flower.wire import FAILED, Letter, RefusedError, Word, packed, scores_words, size, unpacked
from imperfed.folder import RunFolder
from imperfed.products import metrics
from imperfed.threads import one_thread

OPENING = -1
"""The round of exchanges before round 0."""
NO_EXCHANGE = -1
"""The number of the exchange in a message that only asks for figures."""

FEWEST = 10
"""Rows that must stand behind sums that leave a site."""

Handler = Callable[[Place, Letter], Letter]


def hello(place: Place, letter: Letter) -> Letter:
    """Who the site is and what it holds, in numbers that are of no single row."""
    charter = Charter.of(letter)
    config = charter.config()
    card = place.holding(config, charter.declaration).card(config.split.standardise)
    if card.sums and card.rows < FEWEST:
        raise RefusedError(
            f"{place.name} has {card.rows} rows; sums of fewer than {FEWEST} say too much of each of them"
        )
    return card_letter(card)


def answer(place: Place, letter: Letter) -> Letter:
    """The answer to one exchange, figures of the model received, or both: one message for what a round needs."""
    charter, down = Charter.of(letter), letter.trees.get("down", {})
    round, number = letter.number("round"), letter.number("exchange")
    store = place.store(charter.run)
    seat = take_seat(place, charter, down, _key(letter, "from"))
    report, words = Report(round, (seat.index,), {}, {}), dict[str, Word]()
    trees: dict[str, Tree] = {}
    if letter.number("evaluate"):
        model = letter.trees.get("model") or down
        net = seat.take_place(seat.index, model["w"], model["buffers"])
        scores = seat.job.judge.site(seat.index, net)
        words |= scores_words(scores)
        keep_figures(place, charter, Report(round - 1, (), {}, {}, personal={seat.index: scores}))
    if number != NO_EXCHANGE:
        words["loss"], trees["up"] = loss, up = exchange(seat, round, number)
        if round != OPENING and seat.job.algorithm.exchanges(round)[number].trains:
            store.save((round, number), seat.remembered())
            report.losses[seat.index] = loss
        report.sent = {name: tuple(t.shape) for name, t in up.items() if t.numel()}
        keep_figures(place, charter, report)
    store.forget_before(_key(letter, "base"))
    return Letter(words, trees)


def keep_figures(place: Place, charter: Charter, report: Report) -> None:
    """The site's own lines of `metrics.jsonl`; of an exchange that is asked for twice the last ones count."""
    folder, names = RunFolder(place.state / charter.run), (charter.index + 1) * (place.name,)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.append(line for line in metrics(report, names, names) if not line["metric"].startswith("bytes/"))


def leave(place: Place, letter: Letter) -> Letter:
    """The end of a run: the site writes what is its own."""
    charter, model = Charter.of(letter), letter.trees["model"]
    return finish(place, charter, _key(letter, "from"), model, letter.number("round"))


def exchange(seat: Seat, round: int, number: int) -> tuple[float, Tree]:
    """The loss and what is sent; what is kept is in the seat's state afterwards."""
    algorithm, k = seat.job.algorithm, seat.index
    if round == OPENING:
        opening = algorithm.opening()[number]
        assert opening.answer is not None
        return 0.0, at_site.consult(seat, OPENING, k, opening, opening.answer).up
    if algorithm.exchanges(round)[number].weigh is not None:
        net = seat.take_place(k, seat.received["w"], seat.received["buffers"])
        g, losses = weighted_gradient(seat.job, net, seat.state.rows, Route.of(seat.job, [k]), torch.ones(1))
        return float(losses[0]), {"g": g}
    given = at_site.respond(seat, round, number, k)
    if fault := given.fault(seat.state):
        raise RefusedError(f"its answer was refused: {fault}")
    given.keep(seat, k)
    return given.loss, given.up


def _key(letter: Letter, name: str) -> Key:
    round, number = letter.several(name)
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


def handle(place: Place, kind: str, records: RecordDict) -> Letter:
    """A handler's answer, or why there is none; a reason that could quote a row stays in the site's own log."""
    try:
        with one_thread():
            return HANDLERS[kind](place, unpacked(records))
    except Exception as error:
        place.log(f"{_now()} {kind}: {traceback.format_exc().rstrip()}")
        open_words = isinstance(error, ImperfedError) and not isinstance(error, DataError)
        return Letter({FAILED: str(error) if open_words else f"{type(error).__name__}; its log says why"})


def make_app(place_of: Callable[[Mapping[str, object]], Place]) -> ClientApp:
    """The app of a site, given how its place of work follows from the node's configuration."""
    app = ClientApp()

    def reply(message: Message, context: Context) -> Message:
        place, kind = place_of(context.node_config), message.metadata.message_type
        given = handle(place, kind, message.content)
        content = packed(given)
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
