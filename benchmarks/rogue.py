"""A site that answers wrongly on purpose, in another way in every round of `FAULTS`. For `drill.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from flwr.app import Array, ArrayRecord, Context, Message

from imperfed.flower import apps
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


FAULTS: dict[str, tuple[str, Callable[[Message], None]]] = {
    "round 2": ("NaN in an answer", not_a_number),
    "round 3": ("an array cut short", cut_short),
    "round 4": ("100,000 names", many_names),
    "round 5": ("an answer to another message", another_message),
    "round 6": ("12,000 characters of text, some of them control characters", control_characters),
    "round 7": ("400 MB of zeros", many_zeros),
    "round 8": ("a loss that is no number", loss_that_is_no_number),
}


FIGURES = "the end", "figures of 173 % on -5 rows"
"""When a site lies about figures, and how."""
ROWS = 10**12


def boast(reply: Message) -> None:
    """Say that the site has a trillion rows, with sums that go with them."""
    payload = unpack(reply.content)
    rows, sums = payload.number("rows"), payload.trees["sums"]
    for name in ("sum", "square"):
        sums[name] *= ROWS / rows
    sums["count"][:] = ROWS
    reply.content = pack(replace(payload, words={**payload.words, "rows": ROWS}))


def site(message: Message, context: Context) -> Message:
    reply = apps.site(message, context)
    if message.metadata.message_type == "query.hello":
        boast(reply)
    if message.metadata.group_id == FIGURES[0] and message.metadata.message_type == "evaluate":
        impossible_figures(reply)
    if message.metadata.group_id in FAULTS:
        FAULTS[message.metadata.group_id][1](reply)
    return reply
