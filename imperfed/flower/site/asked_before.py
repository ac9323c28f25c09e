"""What a coordinator has asked of a site in a run: to how many models the site has answered, over all restarts.

Whoever may ask about any number of models learns the rows, from updates and from figures alike. In an honest run every
exchange of a round is asked about one model, and figures of a round about one or two. If the coordinator is killed and
resumed, it repeats a round or two, with other models if other sites fail now. So each question is answered once, and a
small number of further ones with other models; a message that comes again counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from imperfed.core.atomic import append_lines
from imperfed.engine.failures import Declined
from imperfed.flower.messages.payload import NO_EXCHANGE, REPAIR, Payload, RefusedError
from imperfed.flower.messages.run_info import NO_TRIAL, RunInfo
from imperfed.flower.site.last_answer import digest_of
from imperfed.flower.site.privacy_ledger import ASKED_OF, NOT_ASKED
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.withheld import WithheldError

FOLDER = "asked"
"""In the folder of a run: a file with a line for every question, and one such file for every trial."""
SLACK, FOR_ROUNDS = 2, 5
"""Exchanges, and figures, that may be asked for again with other models: so many, and one more for so many rounds."""
OTHERS_AGAIN = 8
"""Other questions of one kind that may be asked again with other models, in a search after every rung of trials."""
MOST_TRIALS = 200
MOST_FAMILIES = 200
"""The most trials, and the most families of models, in one search."""
MOST_EXCHANGES = 10_000
COUNTED = {"exchange": "an exchange", "figures": "figures of a model"}
EXCHANGES = ("train", "query.answer", "evaluate")
BY_MODEL = ("query.ready", "query.apply", "query.agree", "query.calibrate", "query.mix", "query.settle", "query.judge")
"""Other messages whose answers follow from what the coordinator chooses."""


def count_question(place: LocalSite, kind: str, payload: Payload) -> None:
    """Note what a message asks; refuse it if too much was asked before."""
    run_info = RunInfo.of(payload)
    rounds = run_info.config().rounds.rounds
    if not NO_TRIAL <= run_info.trial < MOST_TRIALS:
        _refuse(place, f"trial {run_info.trial + 1}: this site takes part in {MOST_TRIALS} of a search")
    path = _file(place, run_info)
    before = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
    new = set(_questions(place, kind, payload, rounds)) - before
    for question in new:
        name = question.split()[0]
        same = [line for line in before | new if line.split()[0] == name]
        again = len(same) - len({line.rpartition(" ")[0] for line in same})
        allowed = SLACK + rounds // FOR_ROUNDS if name in COUNTED else OTHERS_AGAIN
        if again > allowed:
            what = COUNTED.get(name, name)
            _refuse(
                place,
                f"{what} once more: in this run it has answered {allowed} times to models beyond the agreed rounds",
            )
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        append_lines(path, sorted(new))


def _questions(place: LocalSite, kind: str, payload: Payload, rounds: int) -> Iterator[str]:
    """Yield each question in a message: its name, and a digest of all on which its answer depends."""
    if kind in BY_MODEL:
        yield f"{kind} {digest_of(kind, payload)}"
    if kind == "query.alone":
        if not 0 <= (number := payload.number("number")) < MOST_FAMILIES:
            raise RefusedError(f"{number} is no number of a family of models")
        yield f"{kind} {number} {digest_of(kind, payload)}"
    if kind not in EXCHANGES:
        return
    round, number = payload.number("round"), payload.number("exchange")
    words = {name: word for name, word in payload.words.items() if name not in NOT_ASKED}
    if number != NO_EXCHANGE:
        if not 0 <= number < MOST_EXCHANGES:
            raise RefusedError(f"{number} is no number of an exchange")
        if REPAIR <= round < rounds:  # others are refused when they are looked at
            trees = {name: tree for name, tree in payload.trees.items() if name in ASKED_OF}
            yield f"exchange {round} {number} {digest_of('exchange', Payload(words, trees))}"
    if payload.words.get("evaluate") and round != REPAIR:
        if not 0 <= round <= rounds:
            _refuse(place, f"figures after round {round}: it has agreed to {rounds} for this run")
        trees = {name: payload.trees.get(name, {}) for name in ("scale", "annotated")}
        trees["model"] = payload.trees.get("model") or payload.trees["down"]
        own = {name: word for name, word in words.items() if name != "exchange"}
        yield f"figures {round} {digest_of('figures', Payload(own, trees))}"


def _file(place: LocalSite, run_info: RunInfo) -> Path:
    name = "run" if run_info.trial == NO_TRIAL else f"{run_info.trial:04}"
    return place.store(run_info.run).path / FOLDER / f"{name}.txt"


def _refuse(place: LocalSite, what: str) -> None:
    raise WithheldError(Declined(f"{place.name} refuses {what}"))
