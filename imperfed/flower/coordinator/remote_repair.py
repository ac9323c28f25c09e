"""A repair before training with remote sites: each corrects its own labels and reports how many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from imperfed.core.batch import Tree
from imperfed.core.components import Repair
from imperfed.core.errors import ImperfedError, QuorumError
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.federate import FederatedData
from imperfed.engine.conversation import Transcript, conduct, exchanges_of, missing, notes
from imperfed.engine.failures import Failure
from imperfed.engine.validate import LARGEST_SUM, REFUSED, check_size, largest_answer
from imperfed.evaluation.model_figures import figure
from imperfed.flower.coordinator.useless_answers import merged
from imperfed.flower.messages.charging import charged
from imperfed.flower.messages.payload import REPAIR, Payload, Word
from imperfed.flower.messages.run_info import REPAIR_SUBJECT, RunInfo
from imperfed.flower.messages.transport import Transport

EVERY = 25
"""After so many exchanges, of several hundred, the log says how far a repair is."""


def conduct_at_sites(
    repair: Repair, federation: Federation, transport: Transport, run_infos: Sequence[RunInfo]
) -> Transcript:
    """Conduct a repair with all sites; what they decide about their labels stays there."""
    exchanges, trusted = exchanges_of(repair, federation), int(federation.trusted is not None)

    def ask(number: int, downs: Sequence[Tree]) -> tuple[Tree, ...]:
        if number % EVERY == 0:
            transport.tell(f"labels judged: exchange {number + 1} of {len(exchanges)}")
        words: dict[str, Word] = {"round": REPAIR, "exchange": number, "trusted": trusted}
        payloads = {k: run_infos[k].payload(words, {"down": down}) for k, down in enumerate(downs)}
        features = math.prod(federation.x.shape[1:])
        limit = max(largest_answer(down, max(federation.sizes()), features, len(federation.classes)) for down in downs)
        replies = transport.send("query.answer", payloads, f"{REPAIR_SUBJECT}{exchanges[number].name}", limit)
        answers = {k: charged(partial(_answer, reply)) for k, reply in sorted(replies.items())}
        if failed := {transport.names[k]: answer for k, answer in answers.items() if isinstance(answer, Failure)}:
            raise missing(failed, len(answers))
        return tuple(answer for answer in answers.values() if not isinstance(answer, Failure))

    def _answer(reply: Payload | Failure) -> Tree | Failure:
        """Return what a site sent; `converse` checks it against what the others sent."""
        if isinstance(reply, Failure):
            return reply
        up = reply.trees.get("up", {})
        return check_size(up, LARGEST_SUM) or up

    try:
        return conduct(repair, federation, ask, partial(merged, exchanges[-1].name))
    except ImperfedError:
        raise
    except Exception as error:  # of numbers that are possible one by one; to begin again would not help
        raise QuorumError(f"nothing can be made of what the sites sent for repair {repair.name} ({error})") from error


def refuse_claims(server: Tree, federation: Federation) -> None:
    """Refuse what sites say about their own labels if it cannot be; nothing but the report rests on it."""
    told = zip(federation.sites, federation.sizes(), server["changed"].tolist(), server["noise"].tolist(), strict=True)
    for site, rows, changed, noise in told:
        if not 0 <= changed <= rows:
            raise QuorumError(f"{site}: {REFUSED}{changed} labels to change, of {rows} rows")
        if not 0 <= noise <= 1:
            raise QuorumError(f"{site}: {REFUSED}a share of {noise:g} wrong labels")


def repair_at_sites(
    repair: Repair, data: FederatedData, transport: Transport, run_infos: Sequence[RunInfo], wanted: type[Labels]
) -> FederatedData:
    """Conduct a repair with all sites; return the data with the groups found and, in its facts, what was changed.

    `wanted`: the kind of labels that training asks for.
    """
    federation = data.federation
    transcript = conduct_at_sites(repair, federation, transport, run_infos)
    refuse_claims(transcript.server, federation)
    groups = repair.groups_of(transcript.server)
    verdict = repair.verdict(transcript.server, federation.sites)
    facts = {
        "repair": repair.name,
        "labels_changed": transcript.server["changed"].tolist(),
        "noise_estimates": [figure(share) for share in transcript.server["noise"].tolist()],
        "groups_of_sites": list(groups),
        "repair_support": verdict.words if verdict else "",
        "repair_sent": {name: list(shape) for name, shape in transcript.sent.items()},
    }
    for note in notes(repair, transcript, federation):
        transport.tell(note)
    kind = repair.gives(wanted)
    federation = replace(federation, groups=groups, labels=kind.empty(len(federation.classes)))
    return replace(data, federation=federation, facts=data.facts | facts)
