"""A site that answers wrongly on purpose, in another way in every round of `FAULTS`, or with a wrong card."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body

from imperfed.flower import apps
from imperfed.flower.messages.parcel import SMALL
from imperfed.flower.messages.payload import ASKED, WORDS, pack, unpack


def not_a_number(reply: Message) -> None:
    payload = unpack(reply.content)
    payload.trees["up"]["w"][0] = torch.nan
    reply.content = pack(payload)


def cut_short(reply: Message) -> None:
    array = reply.content.array_records["up"]["w"]
    array.data = array.data[: len(array.data) // 2]


def many_names(reply: Message) -> None:
    one = Array(dtype="float32", shape=(1,), stype="plain", data=bytes(20))
    reply.content["up"] = ArrayRecord({f"name {i}": one for i in range(100_000)})


def another_message(reply: Message) -> None:
    reply.content.config_records[WORDS][ASKED] = "0123456789abcdef"


def control_characters(reply: Message) -> None:
    reply.content.config_records[WORDS]["failed"] = "\x1b[2J\x1b[31m" + "all is well " * 1000


def many_zeros(reply: Message) -> None:
    """400 MB of zeros, of which Flower stores one piece that is named many times."""
    array = reply.content.array_records["up"]["w"]
    array.data, array.shape = bytes(400 * 2**20), [100 * 2**20]


def loss_that_is_no_number(reply: Message) -> None:
    reply.content.config_records[WORDS]["loss"] = float("nan")


def impossible_figures(reply: Message) -> None:
    words = reply.content.config_records[WORDS]
    words["values"] = [1.73 for _ in words["values"]]
    words["counts"] = [-5 for _ in words["counts"]]


def no_json(reply: Message) -> None:
    """What describes the arrays is no JSON; the answer is too large to travel in one piece, which has none of this."""
    record = reply.content.array_records["up"]
    record["more"] = Array(dtype="float32", shape=(SMALL,), stype="plain", data=bytes(4 * SMALL))
    record.deflate = lambda: add_header_to_object_body(b"this is not JSON", record)


class WrongAnswer(NamedTuple):
    """How a site answers wrongly, and what that did in the first drill."""

    fault: str
    before: str
    make: Callable[[Message], None]


FAULTS: dict[str, WrongAnswer] = {
    "round 2": WrongAnswer("NaN in an answer", "refused as well", not_a_number),
    "round 3": WrongAnswer("an array cut short", "refused as well", cut_short),
    "round 4": WrongAnswer("100,000 names", "the coordinator was busy for minutes", many_names),
    "round 5": WrongAnswer("an answer to another message", "a replayed update was accepted", another_message),
    "round 6": WrongAnswer(
        "12,000 characters of text, some of them control characters",
        "printed as they came, up to 20 MB",
        control_characters,
    ),
    "round 7": WrongAnswer("400 MB of zeros", "2 GB of them took 6 GB at the coordinator", many_zeros),
    "round 8": WrongAnswer("a loss that is no number", "taken as said", loss_that_is_no_number),
    "round 9": WrongAnswer(
        "an answer that is not JSON", "the coordinator crashed, 5 times in a row, and named no site", no_json
    ),
}


FIGURES = "the end", "figures of 173 % on -5 rows"
"""When a site lies about figures, and how."""
ROWS = 10**12
CARD = "DRILL_WRONG_CARD"
"""The environment variable with which a rogue lies about its classes, and is honest otherwise."""


def boast(reply: Message) -> None:
    """Say that the site has a trillion rows, with sums that go with them."""
    payload = unpack(reply.content)
    rows, sums = payload.number("rows"), payload.trees["sums"]
    for name in ("sum", "square"):
        sums[name] *= ROWS / rows
    sums["count"][:] = ROWS
    reply.content = pack(replace(payload, words={**payload.words, "rows": ROWS}))


def other_classes(reply: Message) -> None:
    """Say that the site has other classes than the others."""
    payload = unpack(reply.content)
    reply.content = pack(replace(payload, words={**payload.words, "classes": ["measles", "mumps", "none"]}))


def site(message: Message, context: Context) -> Message:
    reply = apps.site(message, context)
    kind, when = message.metadata.message_type, message.metadata.group_id
    if os.environ.get(CARD):
        if kind == "query.hello":
            other_classes(reply)
        return reply
    if kind == "query.hello":
        boast(reply)
    if when == FIGURES[0] and kind == "evaluate":
        impossible_figures(reply)
    if when in FAULTS:
        FAULTS[when].make(reply)
    return reply
