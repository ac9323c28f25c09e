"""What a run leaves at a site: its model, the labels inferred for its own rows, and its own report."""

from __future__ import annotations

import json
from dataclasses import replace

from imperfed.core.components import LabelDecision
from imperfed.core.labels.validity import UNKNOWN
from imperfed.core.network import Net
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE
from imperfed.data.labelling import Facts
from imperfed.engine.site import validate
from imperfed.flower.messages.ending import ending_of
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.delivery import SiteDelivery
from imperfed.flower.site.privacy_ledger import own_privacy
from imperfed.flower.site.rows_cache import forget
from imperfed.flower.site.runtime import REPAIRED, LocalSite, RemoteSite, open_site
from imperfed.flower.site.search_answers import forget_search
from imperfed.flower.site.store import Key
from imperfed.report import write_report
from imperfed.results.folder import OWN, RunFolder
from imperfed.results.labels import write_labels
from imperfed.results.repaired_labels import decision_table
from imperfed.results.summary import ValidationSummary
from imperfed.results.write import RunOutcome, write_summary


def finish(place: LocalSite, run_info: RunInfo, start: Key, payload: Payload) -> Payload:
    """Write everything that the site gets from the run; none of it is sent."""
    remote = open_site(place, run_info, start)
    net = remote.load(payload.trees["model"])
    folder = RunFolder(place.state / run_info.run)
    folder.write("config.toml", run_info.settings)
    folder.write(FILE, run_info.declaration)
    folder.write(OWN, json.dumps({"site": place.name}))
    folder.save_model(place.name, {name: t.clone() for name, t in net.layout.tree(net.row).items()})
    if scale := run_info.scale.tree():
        folder.save_model("scale", scale)
    data = replace(remote.data, facts=facts(remote.data))
    write_outcome(folder, remote, data, net, payload, place)
    write_repaired(folder, place, run_info, data)
    write_report(folder)
    forget(place.state)
    forget_search(place, run_info.run)
    return Payload({"done": 1})


def write_outcome(
    folder: RunFolder,
    remote: RemoteSite,
    data: FederatedData,
    net: Net,
    payload: Payload,
    place: LocalSite,
) -> None:
    """Write the inferred labels and the summary of this site alone."""
    evaluator, delivered = remote.evaluator, SiteDelivery.of(folder, remote, net)
    personal = {0: evaluator.site(0, delivered.predictor)} if evaluator.sites else {}
    record, kind = delivered.record(payload), type(data.federation.labels)
    temperature = delivered.temperature(record)
    labels = write_labels(folder, delivered.labels(record), data.federation, evaluator, temperature.value)
    # A mixture has its temperature already.
    rest = 1.0 if delivered.mixture is not None else temperature.value
    predictions = evaluator.predictions(lambda k: delivered.predictor, kind, rest)
    aurocs = None
    if evaluator.annotated is not None:
        aurocs = evaluator.by_class(0, delivered.predictor)[None] if evaluator.sites else None
        evaluator = replace(evaluator, annotated=evaluator.annotated[:1])  # without what is known about other sites
    validation, rounds = ending(remote, net, payload), payload.number("round")
    early = rounds < remote.config.rounds.rounds and not (validation and validation.early)
    outcome = RunOutcome(
        run=remote.config.run,
        objective=remote.runtime.spec.objective.name,
        rounds=rounds,
        personal=personal,
        common={},
        labels=labels,
        class_aurocs=aurocs,
        temperature=temperature,
        predictions=predictions,
        seconds=None,  # only the coordinator times the run
        validation=validation,
        privacy=own_privacy(place, folder.path.name, remote, data, early),
        auto=record,
    )
    write_summary(folder, data, evaluator, outcome)


def ending(remote: RemoteSite, net: Net, payload: Payload) -> ValidationSummary | None:
    """Return which round the model is from, and how far it agrees with the rows that this site holds out."""
    held, name = remote.data.federation.validation, remote.data.federation.labels.validity_name()
    if held is None:
        return ending_of(payload, name, 0, UNKNOWN)
    return ending_of(payload, name, held.starts[-1], validate(net, held, 0))


def facts(data: FederatedData) -> Facts:
    """Return what the report says about the site's data."""
    tests, labels, sizes = data.oracle.test_y, data.federation.labels, data.federation.sizes()
    held = data.federation.validation
    return (
        labels.facts(sizes)
        | ({} if held is None else {"held_out_rows": held.sizes()})
        | {
            "labels": labels.kind,
            "rows": sizes,
            "test_rows": [len(y) for y in tests],
            "common_test_rows": 0,
            "rows_left_out": 0,
            "public_rows": 0,
        }
    )


def write_repaired(folder: RunFolder, place: LocalSite, run_info: RunInfo, data: FederatedData) -> None:
    """Write `labels/<site>.parquet` of a repair: labels as given and as suggested, with the reasons."""
    config, kept = run_info.config(), place.store(run_info.run).kept(REPAIRED)
    if kept is None or config.repair is None:
        return
    names, decision = data.federation.classes, LabelDecision.of(kept)
    files = place.files(config, run_info.declaration)
    columns = decision_table(files.ids, files.labels.values, decision, config.repair.reasons(names, decision), names)
    folder.save_table(f"labels/{place.name}.parquet", columns)
