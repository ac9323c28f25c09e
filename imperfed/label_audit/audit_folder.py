"""The folder of an audit: `labels/<site>.parquet`, `audit.json` and `audit.html`."""

from __future__ import annotations

from pathlib import Path

from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import called
from imperfed.data.scale import Scale
from imperfed.experiments.config import Config
from imperfed.label_audit.audit_page import Thumbnails, page
from imperfed.label_audit.audit_summary import AuditSummary
from imperfed.label_audit.findings import label_columns, summarise
from imperfed.label_audit.judging import Judgement, judge
from imperfed.label_audit.thumbnails import are_images, thumbnail
from imperfed.repairs.features import resolved
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.results.folder import RunFolder
from imperfed.results.folder_names import unused_path

AUDITS = Path("audits")
"""The folder below which audits are written that name none."""


def check_new(folder: Path, option: str = "--out") -> None:
    """Refuse a folder that exists already, unless it is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists, and nothing is overwritten; choose another folder with {option}")


def audit(config: Config, data: FederatedData, out: Path | None) -> tuple[Path, AuditSummary]:
    """Judge all labels and write the findings into a new folder; nothing is written if they cannot be judged."""
    if out is not None:
        check_new(out)
    assert isinstance(config.repair, PosteriorRepair)
    judged = judge(config.repair, data)
    features = resolved(config.repair.features, judged.federation.x)
    summary = summarise(judged, config.repair.name, features)
    folder = RunFolder(out or unused_path(AUDITS, called(config.run.data), config.digest()))
    write_audit(folder, judged, summary, data.scale)
    return folder.path, summary


def write_audit(folder: RunFolder, judged: Judgement, summary: AuditSummary, scale: Scale) -> None:
    """Write label files, figures and page."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder.path} ({error.strerror}); choose another folder with --out"
        ) from error
    for k, site in enumerate(judged.federation.sites):
        folder.save_table(f"labels/{site}.parquet", label_columns(judged, k))
    folder.write("audit.json", summary.to_json())
    folder.write("audit.html", page(summary, thumbnails_of(judged, summary, scale)))


def thumbnails_of(judged: Judgement, summary: AuditSummary, scale: Scale) -> Thumbnails:
    """Return pictures of all suspects that are listed; none if the rows are not images."""
    federation = judged.federation
    if not are_images(federation.x):
        return {}
    pictures = {}
    for site, (a, b) in zip(summary.sites, judged.ranges(), strict=True):
        x, listed = federation.inputs(a, b), {suspect.id for suspect in site.worst}
        ids = enumerate(federation.ids[a:b])
        pictures[site.site] = {name: thumbnail(x[row], scale) for row, name in ids if name in listed}
    return pictures
