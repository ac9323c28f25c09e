"""What a run leaves at a site: its model, the labels worked out for its own rows, and a report of its own."""

from __future__ import annotations

from dataclasses import replace

from imperfed.core.batch import Tree
from imperfed.data.federate import Facts, FederatedData
from imperfed.engine import site as at_site
from imperfed.evaluation.evaluator import figure
from imperfed.experiments.experiment import make_evaluator
from imperfed.data.files.declaration import FILE
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.repair import conversation
from imperfed.flower.site.runtime import REPAIRED, LocalSite, RemoteRuntime, own_data, load_runtime
from imperfed.flower.site.store import Key
from imperfed.flower.messages.payload import Payload
from imperfed.results.folder import RunFolder
from imperfed.core.labels import Annotated
from imperfed.core.network import Net
from imperfed.results.labels import write_labels
from imperfed.results.write import RunOutcome, write_summary
from imperfed.repairs.protocol import LabelDecision
from imperfed.report import write_report


def finish(place: LocalSite, run_info: RunInfo, start: Key, model: Tree, rounds: int) -> Payload:
    """Write everything that the site gets from the run; nothing of it is sent."""
    runtime = load_runtime(place, run_info, {}, start)
    net = runtime.load_site(runtime.index, model["w"], model["buffers"])
    folder = RunFolder(place.state / run_info.run)
    folder.write("config.toml", run_info.settings)
    folder.write(FILE, run_info.declaration)
    folder.save_model(place.name, {name: t.clone() for name, t in runtime.spec.layout.tree(net.row).items()})
    if len(run_info.scale.mean):
        folder.save_model("scale", {"mean": run_info.scale.mean, "spread": run_info.scale.spread})
    data = own_data(place, run_info, runtime.config, 0)
    data = replace(data, facts=facts(data))
    write_outcome(folder, runtime, data, net, rounds)
    mended(folder, place, run_info, data)
    write_report(folder)
    return Payload({"done": 1})


def write_outcome(folder: RunFolder, runtime: RemoteRuntime, data: FederatedData, net: Net, rounds: int) -> None:
    """The labels worked out, and the summary of this site alone."""
    evaluator = make_evaluator(runtime.config, data)
    personal = {0: evaluator.site(0, net)} if evaluator.sites else {}
    labels = write_labels(folder, at_site.infer_labels(runtime, runtime.index, net), data.federation, evaluator)
    aurocs = None
    if evaluator.annotated is not None:
        aurocs = evaluator.by_class(0, net)[None] if evaluator.sites else None
        evaluator = replace(evaluator, annotated=evaluator.annotated[:1])  # without what is known of other sites
    run, objective = runtime.config.run, runtime.spec.objective.name
    write_summary(folder, data, evaluator, RunOutcome(run, objective, rounds, personal, {}, labels, aurocs))


def facts(data: FederatedData) -> Facts:
    """Return what the report says of the site's data."""
    tests, labels = data.oracle.test_y, data.federation.labels
    known: Facts = {}
    if isinstance(labels, Annotated):
        known["annotated_rows"] = (labels.values >= 0).sum(0)[:, None].tolist()  # [class][site]
    return known | {
        "labels": labels.kind,
        "rows": data.federation.sizes(),
        "test_rows": [len(y) for y in tests],
        "common_test_rows": 0,
        "rows_left_out": 0,
        "public_rows": 0,
    }


def mended(folder: RunFolder, place: LocalSite, run_info: RunInfo, data: FederatedData) -> None:
    """`labels/<site>.parquet` of a repair: labels as given and as suggested, with its reasons."""
    kept = place.store(run_info.run).kept(REPAIRED)
    if kept is None:
        return
    config, names = run_info.config(), data.federation.classes
    given = place.holding(config, run_info.declaration).labels.values
    verdict = LabelDecision(kept["suggested"], kept["confidence"], kept["why"], float(kept["noise"]))
    columns = {
        "id": list(data.federation.ids),
        "given": [names[c] for c in given.tolist()],
        "suggested": [names[c] for c in verdict.suggested.tolist()],
        "confidence": verdict.confidence.tolist(),
        "reason": list(conversation(config.repair).reasons(names, verdict)),
        "noise estimate": [figure(verdict.noise)] * len(given),
    }
    folder.save_table(f"labels/{place.name}.parquet", columns)
