"""A site that answers wrongly on purpose, in another way in every round of `FAULTS`. For `drill.py`."""

from __future__ import annotations

from collections.abc import Callable

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


FAULTS: dict[str, tuple[str, Callable[[Message], None]]] = {
    "round 2": ("NaN in an answer", not_a_number),
    "round 3": ("an array cut short", cut_short),
    "round 4": ("100,000 names", many_names),
    "round 5": ("an answer to another message", another_message),
    "round 6": ("12,000 characters of text, some of them control characters", control_characters),
}


def site(message: Message, context: Context) -> Message:
    reply = apps.site(message, context)
    if message.metadata.group_id in FAULTS:
        FAULTS[message.metadata.group_id][1](reply)
    return reply
