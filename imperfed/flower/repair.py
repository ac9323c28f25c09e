"""A repair before training, by message: the coordinator leads the conversation, and every site mends its own labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from imperfed.core.batch import Tree
from imperfed.core.components import Repair
from imperfed.core.errors import QuorumError, UsageError
from imperfed.core.labels import Exact
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.task_pool import Failure
from imperfed.evaluation.evaluator import figure
from imperfed.flower.messages.payload import Payload, RefusedError
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.transport import Transport
from imperfed.flower.site.runtime import REPAIRED, LocalSite
from imperfed.repairs.protocol import Conversation, View, lead


def conversation(repair: Repair | None) -> Conversation:
    """The repair as one whose sites may be elsewhere."""
    if not isinstance(repair, Conversation):
        raise UsageError(f"the repair {repair and repair.name} cannot be held with sites that are elsewhere")
    return repair


# -- a site -----------------------------------------------------------------------------------------------------------


def step(place: LocalSite, payload: Payload) -> Payload:
    """A site's answer to one step, from its labels as given. What it works out on the way stays in its store."""
    run_info, number = RunInfo.of(payload), payload.number("step")
    view, classes = seen(place, run_info, number)
    steps = conversation(run_info.config().repair).steps(classes)
    up = steps[number].answer(view, payload.trees.get("received", {}))
    place.store(run_info.run).keep(f"repair-{number}", view.memory)
    return Payload({"step": number}, {"up": up})


def mend(place: LocalSite, payload: Payload) -> Payload:
    """The end of the conversation: the site decides about its own labels, and tells how many it has changed."""
    run_info = RunInfo.of(payload)
    view, classes = seen(place, run_info, payload.number("step"))
    verdict = conversation(run_info.config().repair).decide(classes, view, payload.trees.get("received", {}))
    kept = {"suggested": verdict.suggested, "confidence": verdict.confidence, "why": verdict.why}
    place.store(run_info.run).keep(REPAIRED, kept | {"noise": torch.tensor(verdict.noise, dtype=torch.float64)})
    changed = int((verdict.suggested != view.labels.values).sum())
    return Payload({"changed": changed, "noise": float(verdict.noise)})


def seen(place: LocalSite, run_info: RunInfo, step: int) -> tuple[View, tuple[str, ...]]:
    """What the site sees, with what it had worked out before this step; and the classes."""
    federation = place.holding(run_info.config(), run_info.declaration).scene(0, run_info.scale).federation
    if not isinstance(federation.labels, Exact):
        raise RefusedError(f"a repair mends exact labels; the site holds {federation.labels.kind}")
    memory = place.store(run_info.run).kept(f"repair-{step - 1}") or {}
    return View(run_info.index, federation.x, federation.labels, memory), federation.classes


# -- the coordinator --------------------------------------------------------------------------------------------------


def hold(transport: Transport, run_infos: Sequence[RunInfo], repair: Repair, data: FederatedData) -> FederatedData:
    """Lead the conversation with all sites; the scene with the groups found and what was done, for the report."""
    talking, federation = conversation(repair), data.federation
    talking.check(federation)
    steps = talking.steps(federation.classes)

    def ask(number: int, received: Sequence[Tree]) -> tuple[Tree, ...]:
        payloads = {k: c.payload({"step": number}, {"received": received[k]}) for k, c in enumerate(run_infos)}
        given = everybody(transport, transport.send("query.repair", payloads, f"repair, {steps[number].name}"))
        return tuple(finite(transport.names[k], payload.trees.get("up", {})) for k, payload in given.items())

    talk = lead(steps, len(run_infos), ask, talking.opening(federation))
    payloads = {k: c.payload({"step": len(steps)}, {"received": talk.received[k]}) for k, c in enumerate(run_infos)}
    given = everybody(transport, transport.send("query.mend", payloads, "repair, the end"))
    federation = talking.grouped(federation, talk)
    changed = [payload.number("changed") for payload in given.values()]
    facts = {
        "repair": repair.name,
        "labels_changed": changed,
        "noise_estimates": [figure(payload.real("noise")) for payload in given.values()],
        "groups_of_sites": list(federation.groups),
        "repair_sent": {name: list(shape) for name, shape in talk.sent().items()},
    }
    transport.tell(f"repair {repair.name}: {sum(changed)} of {federation.starts[-1]} labels corrected")
    if federation.groups:
        transport.tell(f"repair {repair.name}: groups of the sites {list(federation.groups)}")
    return replace(data, federation=federation, facts=data.facts | facts)


def everybody(transport: Transport, given: Mapping[int, Payload | Failure]) -> dict[int, Payload]:
    """The letters of all sites; without all of them there is no repair."""
    failed = [f"{transport.names[k]}: {one.reason}" for k, one in sorted(given.items()) if isinstance(one, Failure)]
    if failed:
        raise QuorumError(f"a repair needs the answer of every site. {'; '.join(failed)}")
    return {k: payload for k, payload in sorted(given.items()) if isinstance(payload, Payload)}


def finite(name: str, up: Tree) -> Tree:
    """An answer whose numbers can be used."""
    for part, t in up.items():
        if not torch.isfinite(t).all():
            raise QuorumError(f"a repair needs the answer of every site. {name}: {part!r} is not finite")
    return up
