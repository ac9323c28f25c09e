"""Which settings real sites can follow, as far as that is known before any of them has connected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from imperfed.core.errors import UsageError
from imperfed.core.federation import TO_TRUST
from imperfed.core.labels import KINDS
from imperfed.data.files.declaration import Declaration
from imperfed.data.scale import Scale
from imperfed.data.site_description import SiteInfo
from imperfed.data.site_files import ServerFiles
from imperfed.experiments.config import Config
from imperfed.experiments.plugins import refuse_what_stays_here
from imperfed.experiments.run_parts import refuse_other_labels


def accepted(config: Config, declared: bool) -> Config:
    """Return settings as real sites follow them; refuse those that they cannot. `declared`: sites have own files."""
    if config.method.pools_data:
        raise UsageError(f"{config.run.method} brings all rows to one place, but real sites keep theirs")
    if config.attack is not None and declared:
        raise UsageError("attacks are simulated on named datasets; no real site is asked to attack")
    refuse_what_stays_here(config, "every real site imports the parts of its run")
    if config.run.device.startswith("cuda"):
        raise UsageError("each site chooses its own device (`imperfed join --device cuda`); leave it out here")
    return replace(config, run=replace(config.run, device="cpu"))


def refuse_ruled_out(config: Config, declaration: Declaration, central: ServerFiles, sites: Sequence[str]) -> None:
    """Refuse a method or a repair that the declared labels or the coordinator's own files rule out."""
    accepted(config, declared=True)
    kind, repair = KINDS[declaration.labels.kind], config.repair
    if repair is not None and kind is not repair.labels:
        raise UsageError(
            f"repair {repair.name} corrects {repair.labels.kind} labels, but {declaration.file} declares {kind.kind} "
            "labels"
        )
    if config.method.needs_server_rows and central.trusted is None:
        raise UsageError(f"{config.run.method} needs labelled rows at the server: {TO_TRUST}")
    # Nothing is known of the sites' rows but the kind of their labels.
    infos = [SiteInfo(name, 1, kind.kind, central.classes, (1,), 0, -1, False, {}, {}) for name in sites]
    refuse_other_labels(config, central.data(infos, Scale.none()))
