"""A site that answers wrongly on purpose: not a number in round 2, an array cut short in round 3. For `drill.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, Context, Message

from imperfed.flower import apps


def not_a_number(array: Array) -> Array:
    return Array(np.full_like(array.numpy(), np.nan))


def cut_short(array: Array) -> Array:
    return Array(dtype=array.dtype, shape=array.shape, stype=array.stype, data=array.data[: len(array.data) // 2])


FAULTS: dict[str, Callable[[Array], Array]] = {"round 2": not_a_number, "round 3": cut_short}


def site(message: Message, context: Context) -> Message:
    reply = apps.site(message, context)
    fault = FAULTS.get(message.metadata.group_id)
    for record in reply.content.array_records.values() if fault else ():
        for name, array in record.items():
            if array.shape and array.dtype == "float32":
                record[name] = fault(array)
    return reply
