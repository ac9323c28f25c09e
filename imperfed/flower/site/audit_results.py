"""What an audit leaves at a site: what it thinks of its own labels, as `imperfed audit` writes it; nothing is sent."""

from __future__ import annotations

from imperfed.core.components import LabelDecision
from imperfed.core.errors import UsageError
from imperfed.data.files.declaration import FILE
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.rows_cache import forget
from imperfed.flower.site.runtime import REPAIRED, LocalSite
from imperfed.label_audit.audit_folder import write_audit
from imperfed.label_audit.findings import summarise
from imperfed.label_audit.judging import judge_of, judge_own
from imperfed.repairs.features import resolved
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.results.folder import RunFolder


def write_own_audit(place: LocalSite, payload: Payload) -> Payload:
    """End an audit: write what the site thinks of its own labels, and forget what is no longer needed."""
    run_info = RunInfo.of(payload)
    config, store = run_info.config(), place.store(run_info.run)
    repair, kept = config.repair, store.kept(REPAIRED)
    if kept is None or not isinstance(repair, PosteriorRepair):
        raise UsageError(f"{place.name} has not judged its labels in {run_info.run}")
    data = place.files(config, run_info.declaration).data(run_info.scale)
    repair = judge_of(repair, type(data.federation.labels))
    verdict = repair.verdict(payload.trees["verdict"], (place.name,))
    clean_rows, others = payload.number("clean rows"), payload.number("others")
    judged = judge_own(repair, data, LabelDecision.of(kept), verdict, clean_rows, others)
    summary = summarise(judged, repair.name, resolved(repair.features, data.federation.x))
    folder = RunFolder(store.path)
    folder.write("config.toml", run_info.settings)
    folder.write(FILE, run_info.declaration)
    write_audit(folder, judged, summary, data.scale)
    store.drop(REPAIRED)
    forget(place.state)
    return Payload({"done": 1})
