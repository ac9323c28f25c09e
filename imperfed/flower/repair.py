"""A repair before training, by message: the coordinator leads the conversation, and every site mends its own labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from imperfed.auxiliary import Repair
from imperfed.core import Tree
from imperfed.data.federate import Scene
from imperfed.engine.crew import Failure
from imperfed.errors import QuorumError, UsageError
from imperfed.evaluate import figure
from imperfed.flower.charter import Charter
from imperfed.flower.mail import Mail
from imperfed.flower.seat import MENDED, Place
from imperfed.flower.wire import Letter, RefusedError
from imperfed.labels import Exact
from imperfed.repairs.protocol import Conversation, View, lead


def conversation(repair: Repair | None) -> Conversation:
    """The repair as one whose sites may be elsewhere."""
    if not isinstance(repair, Conversation):
        raise UsageError(f"the repair {repair and repair.name} cannot be held with sites that are elsewhere")
    return repair


# -- a site -----------------------------------------------------------------------------------------------------------


def step(place: Place, letter: Letter) -> Letter:
    """A site's answer to one step, from its labels as given. What it works out on the way stays in its store."""
    charter, number = Charter.of(letter), letter.number("step")
    view, classes = seen(place, charter, number)
    steps = conversation(charter.config().repair).steps(classes)
    up = steps[number].answer(view, letter.trees.get("received", {}))
    place.store(charter.run).keep(f"repair-{number}", view.memory)
    return Letter({"step": number}, {"up": up})


def mend(place: Place, letter: Letter) -> Letter:
    """The end of the conversation: the site decides about its own labels, and tells how many it has changed."""
    charter = Charter.of(letter)
    view, classes = seen(place, charter, letter.number("step"))
    verdict = conversation(charter.config().repair).decide(classes, view, letter.trees.get("received", {}))
    kept = {"suggested": verdict.suggested, "confidence": verdict.confidence, "why": verdict.why}
    place.store(charter.run).keep(MENDED, kept | {"noise": torch.tensor(verdict.noise, dtype=torch.float64)})
    changed = int((verdict.suggested != view.labels.values).sum())
    return Letter({"changed": changed, "noise": float(verdict.noise)})


def seen(place: Place, charter: Charter, step: int) -> tuple[View, tuple[str, ...]]:
    """What the site sees, with what it had worked out before this step; and the classes."""
    federation = place.holding(charter.config(), charter.declaration).scene(0, charter.scale).federation
    if not isinstance(federation.labels, Exact):
        raise RefusedError(f"a repair mends exact labels; the site holds {federation.labels.kind}")
    memory = place.store(charter.run).kept(f"repair-{step - 1}") or {}
    return View(charter.index, federation.x, federation.labels, memory), federation.classes


# -- the coordinator --------------------------------------------------------------------------------------------------


def hold(mail: Mail, charters: Sequence[Charter], repair: Repair, scene: Scene) -> Scene:
    """Lead the conversation with all sites; the scene with the groups found and what was done, for the report."""
    talking, federation = conversation(repair), scene.federation
    talking.check(federation)
    steps = talking.steps(federation.classes)

    def ask(number: int, received: Sequence[Tree]) -> tuple[Tree, ...]:
        letters = {k: c.letter({"step": number}, {"received": received[k]}) for k, c in enumerate(charters)}
        given = everybody(mail, mail.send("query.repair", letters, f"repair, {steps[number].name}"))
        return tuple(finite(mail.names[k], letter.trees.get("up", {})) for k, letter in given.items())

    talk = lead(steps, len(charters), ask, talking.opening(federation))
    letters = {k: c.letter({"step": len(steps)}, {"received": talk.received[k]}) for k, c in enumerate(charters)}
    given = everybody(mail, mail.send("query.mend", letters, "repair, the end"))
    federation = talking.grouped(federation, talk)
    changed = [letter.number("changed") for letter in given.values()]
    facts = {
        "repair": repair.name,
        "labels_changed": changed,
        "noise_estimates": [figure(letter.real("noise")) for letter in given.values()],
        "groups_of_sites": list(federation.groups),
        "repair_sent": {name: list(shape) for name, shape in talk.sent().items()},
    }
    mail.tell(f"repair {repair.name}: {sum(changed)} of {federation.starts[-1]} labels corrected")
    if federation.groups:
        mail.tell(f"repair {repair.name}: groups of the sites {list(federation.groups)}")
    return replace(scene, federation=federation, facts=scene.facts | facts)


def everybody(mail: Mail, given: Mapping[int, Letter | Failure]) -> dict[int, Letter]:
    """The letters of all sites; without all of them there is no repair."""
    failed = [f"{mail.names[k]}: {one.reason}" for k, one in sorted(given.items()) if isinstance(one, Failure)]
    if failed:
        raise QuorumError(f"a repair needs the answer of every site. {'; '.join(failed)}")
    return {k: letter for k, letter in sorted(given.items()) if isinstance(letter, Letter)}


def finite(name: str, up: Tree) -> Tree:
    """An answer whose numbers can be used."""
    for part, t in up.items():
        if not torch.isfinite(t).all():
            raise QuorumError(f"a repair needs the answer of every site. {name}: {part!r} is not finite")
    return up
