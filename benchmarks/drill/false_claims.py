"""A site whose every answer is possible in form and false in what it says, and one that never gives a usable answer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flwr.app import Array, Context, Message

from benchmarks.drill.actors import read
from benchmarks.drill.consortium import SETTINGS, SITES, Consortium, failures
from imperfed.flower import apps
from imperfed.flower.messages.parcel import SMALL, Parcel
from imperfed.flower.messages.payload import WORDS, pack, unpack
from imperfed.flower.processes import adapter
from imperfed.flower.processes.child import free_port
from imperfed.flower.site import handlers

ROGUE = "benchmarks.drill.false_claims:site"
WAY, MARKS = "DRILL_WAY", "DRILL_MARKS"
"""How this site is wrong, and where it notes what it has said already."""
OTHER_VERSION = "0.0.1"
SUPERLINK = 1
"""The number of SuperLink among Flower's nodes."""


def foreign_names(reply: Message) -> None:
    words: Any = reply.content.config_records[WORDS]
    words["metrics"] = ["zzz" for _ in words["metrics"]]


def double_precision(reply: Message) -> None:
    payload = unpack(reply.content)
    payload.trees["up"]["w"] = payload.trees["up"]["w"].double()
    reply.content = pack(payload)


def contradictory_tree(reply: Message) -> None:
    """An object that has parts in one place and none in another; the answer is too large to travel in one piece."""
    more = Array(dtype="float32", shape=(SMALL,), stype="plain", data=bytes(4 * SMALL))
    reply.content.array_records["up"]["more"] = more
    usual = adapter.get_object_tree

    def tree(message: Message) -> Any:
        whole = usual(message)
        array = next(part for part in adapter.iterate_object_tree(whole) if len(part.children) == 1)
        whole.children.append(adapter.ObjectTree(object_id=array.object_id))
        return whole

    vars(adapter)["get_object_tree"] = tree


def as_superlink(reply: Message) -> None:
    """An instruction to itself in place of the answer, which says that it is from SuperLink."""
    usual = Parcel.of

    def forged(message: Message) -> Parcel:
        parcel = usual(message)
        metadata = parcel.record.metadata
        metadata.src_node_id, metadata.dst_node_id, metadata.reply_to_message_id = SUPERLINK, metadata.src_node_id, ""
        return parcel

    Parcel.of = staticmethod(forged)  # type: ignore[assignment,method-assign]


class FalseClaim(NamedTuple):
    """What a site says, and what that did before."""

    fault: str
    before: str
    make: Callable[[Message], None]
    seen: str
    """What the coordinator notes of it."""


CLAIMS: dict[str, FalseClaim] = {
    "round 2": FalseClaim(
        "an answer in the wrong type",
        "refused with two equal shapes",
        double_precision,
        r"round 2: south failed: .*",
    ),
    "round 3": FalseClaim(
        "figures under names that no one measures",
        "the run ended: `KeyError: 'accuracy'`",
        foreign_names,
        r"south: its metrics were refused: .*",
    ),
    "round 4": FalseClaim(
        "an object with other parts in another place",
        "every honest answer that held the same object was refused",
        contradictory_tree,
        r"refused a message of node \d+: object .*",
    ),
    "round 5": FalseClaim(
        "a message that says it is from SuperLink",
        "it was stored and delivered, and gave leave to push more",
        as_superlink,
        r"refused a message of node \d+: it says .*",
    ),
}
"""By the exchange in which a site says it for the first time."""
SUMS = "sums for the scaling that no rows have"


def lying_sums(reply: Message) -> None:
    payload = unpack(reply.content)
    sums = payload.trees["sums"]
    reply.content = pack(replace(payload, trees={**payload.trees, "sums": sums | {"square": sums["square"] / 100}}))


def site(message: Message, context: Context) -> Message:
    """Answer wrongly in the way that the environment names; what is asked again is answered honestly."""
    way, kind, when = os.environ[WAY], message.metadata.message_type, message.metadata.group_id
    if way == "version":
        vars(handlers)["__version__"] = OTHER_VERSION
        return apps.site(message, context)
    reply = apps.site(message, context)
    if way == "never":
        if kind == "train":
            payload = unpack(reply.content)
            payload.trees["up"]["w"][0] = torch.nan
            reply.content = pack(payload)
    elif first_time(kind if kind == "query.hello" else when):
        if kind == "query.hello":
            lying_sums(reply)
        elif when in CLAIMS and kind == "train":
            CLAIMS[when].make(reply)
    return reply


def first_time(what: str) -> bool:
    """Return whether this is said for the first time, and note that it was."""
    mark = Path(os.environ[MARKS]) / what.replace(" ", "-")
    new = not mark.exists()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return new


def claims_are_false(drill: Consortium) -> None:
    """Let one site say what cannot be, one never give a usable answer, and one have another version."""
    port = free_port()
    serving = drill.serve("claims", port, rounds=7)
    how = {WAY: "claims", MARKS: str(drill.home / "marks")}
    actors = {n: drill.join("claims", n, port, rogue=ROGUE if n == "south" else False, env=how) for n in SITES}
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    run, honest = drill.folder("claims"), drill.toll("claims", "north", "west")
    own = read(run / "flower" / "superlink.log")
    said = read(run / "messages.txt") + read(run / "log.txt") + own
    refused = re.findall(r"is not admitted: (south: its sums.*)", said)
    told = f"“{refused[0]}”, and admitted when it said what is true" if refused else "NOTHING"
    drill.tell(SUMS, "taken as said", f"{told}; code {code}", "nothing", 0, honest.at_the_end())
    for when, claim in CLAIMS.items():
        found = re.search(claim.seen, said)
        again = re.search(rf"{when}: asking south again after \S+ s", said)
        seen = "NOTHING" if found is None else found[0]
        lost = sum(reason.startswith(when) for reason in failures(run, "south"))
        site_sees = "an answer was not taken" if again else "its log"
        drill.tell(
            claim.fault,
            claim.before,
            f"{seen}{f'; {again[0]}' if again else ''}; code {code}",
            site_sees,
            lost,
            honest.at_the_end(),
        )
    never_answers(drill)
    another_version(drill)


def never_answers(drill: Consortium) -> None:
    """Let one site fail in every round."""
    port = free_port()
    serving = drill.serve("never", port, rounds=3)
    actors = {
        n: drill.join("never", n, port, rogue=ROGUE if n == "south" else False, env={WAY: "never"}) for n in SITES
    }
    codes = serving.ended(), actors["south"].ended()
    for name in ("north", "west"):
        actors[name].ended()
    drill.tell(
        "a site that fails in every round",
        "changed no exit code, and did not end its `join`",
        f"{serving.said(r'^error: .*')} (code {codes[0]})",
        f"{actors['south'].last()} (code {codes[1]})",
        len(failures(drill.folder("never"), "south")),
        drill.toll("never", "north", "west").at_the_end(),
    )


def another_version(drill: Consortium) -> None:
    """Let one site have another version of imperfed."""
    port = free_port()
    serving = drill.serve("version", port, rounds=3, settings=SETTINGS)
    actors = {
        n: drill.join("version", n, port, rogue=ROGUE if n == "south" else False, env={WAY: "version"}) for n in SITES
    }
    code = serving.ended()
    said = serving.said(r"^error: .*")
    kept = re.findall(r".*it has imperfed.*", read(drill.home / "version-south" / "log.txt"))
    lost = drill.toll("version", *SITES)
    drill.tell(
        "a site with another version of imperfed",
        "no site was asked for its version",
        f"{said} (code {code})",
        "the same in its log" if kept else "nothing",
        f"{lost.rounds()} (before round 1)",
        lost.state(),
    )
    for actor in actors.values():
        actor.end()
