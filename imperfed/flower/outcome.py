"""What a run leaves at a site: its model, the labels worked out for its own rows, and a report of its own."""

from __future__ import annotations

from dataclasses import replace

from imperfed.core import Tree
from imperfed.data.federate import Scene
from imperfed.engine import site as at_site
from imperfed.evaluate import figure
from imperfed.experiment import judge_of
from imperfed.files.declaration import FILE
from imperfed.flower.charter import Charter
from imperfed.flower.repair import conversation
from imperfed.flower.seat import MENDED, Place, Seat, own_scene, take_seat
from imperfed.flower.store import Key
from imperfed.flower.wire import Letter
from imperfed.folder import Record, RunFolder
from imperfed.labels import Annotated
from imperfed.network import Net
from imperfed.products import Outcome, write_labels, write_summary
from imperfed.repairs.protocol import Verdict
from imperfed.report import write_report


def finish(place: Place, charter: Charter, start: Key, model: Tree, rounds: int) -> Letter:
    """Write everything that the site gets from the run; nothing of it is sent."""
    seat = take_seat(place, charter, {}, start)
    net = seat.take_place(seat.index, model["w"], model["buffers"])
    folder = RunFolder(place.state / charter.run)
    folder.write("config.toml", charter.settings)
    folder.write(FILE, charter.declaration)
    folder.save_model(place.name, {name: t.clone() for name, t in seat.job.layout.tree(net.row).items()})
    if len(charter.scale.mean):
        folder.save_model("scale", {"mean": charter.scale.mean, "spread": charter.scale.spread})
    scene = own_scene(place, charter, seat.config, 0)
    scene = replace(scene, facts=facts(scene))
    write_outcome(folder, seat, scene, net, rounds)
    mended(folder, place, charter, scene)
    write_report(folder)
    return Letter({"done": 1})


def write_outcome(folder: RunFolder, seat: Seat, scene: Scene, net: Net, rounds: int) -> None:
    """The labels worked out, and the summary of this site alone."""
    judge = judge_of(seat.config, scene)
    personal = {0: judge.site(0, net)} if judge.sites else {}
    labels = write_labels(folder, at_site.believe(seat, seat.index, net), scene, judge)
    areas = None
    if judge.annotated is not None:
        areas = judge.by_class(0, net)[None] if judge.sites else None
        judge = replace(judge, annotated=judge.annotated[:1])  # without what is known of other sites
    run = seat.config.run
    head: Record = {
        "title": run.title,
        "method": run.method,
        "objective": seat.job.objective.name,
        "data": scene.federation.name,
        "seed": run.seed,
        "data_seed": run.data_seed,
        "seconds": None,  # the run was the coordinator's
    }
    write_summary(folder, scene, judge, head, Outcome(rounds, personal, {}, labels, areas))


def facts(scene: Scene) -> Record:
    """What the report says of the site's data."""
    tests, labels = scene.oracle.test_y, scene.federation.labels
    known: Record = {}
    if isinstance(labels, Annotated):
        known["annotated_rows"] = (labels.values >= 0).sum(0)[:, None].tolist()  # [class][site]
    return known | {
        "labels": labels.kind,
        "rows": scene.federation.sizes(),
        "test_rows": [len(y) for y in tests],
        "common_test_rows": 0,
        "rows_left_out": 0,
        "public_rows": 0,
    }


def mended(folder: RunFolder, place: Place, charter: Charter, scene: Scene) -> None:
    """`labels/<site>.parquet` of a repair: labels as given and as suggested, with its reasons."""
    kept = place.store(charter.run).kept(MENDED)
    if kept is None:
        return
    config, names = charter.config(), scene.federation.classes
    given = place.holding(config, charter.declaration).labels.values
    verdict = Verdict(kept["suggested"], kept["confidence"], kept["why"], float(kept["noise"]))
    columns = {
        "id": list(scene.federation.ids),
        "given": [names[c] for c in given.tolist()],
        "suggested": [names[c] for c in verdict.suggested.tolist()],
        "confidence": verdict.confidence.tolist(),
        "reason": list(conversation(config.repair).reasons(names, verdict)),
        "noise estimate": [figure(verdict.noise)] * len(given),
    }
    folder.save_table(f"labels/{place.name}.parquet", columns)
