"""The data of a site and of the coordinator, from their files, read as the simulation reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from imperfed.core.errors import UsageError
from imperfed.data.files.declaration import Declaration, parse
from imperfed.data.files.reading import read_server, read_site
from imperfed.data.files.wildcards import refuse_patterns
from imperfed.data.own_files import COUNT, refuse_settings, server_files, site_files, tested_groups
from imperfed.data.site_files import ServerFiles, SiteFiles
from imperfed.data.split import SplitConfig
from imperfed.experiments.config import Config


def refuse(config: Config, declaration: Declaration) -> None:
    """Refuse settings that the files decide, and those by which rows would leave a site."""
    refuse_settings(declaration, replace(config.split, standardise=SplitConfig.standardise), config.labels)
    if why := refuse_patterns(declaration):
        raise UsageError(f"{declaration.file}: {why}")
    for name in COUNT:
        if name in ("public", "trusted") and getattr(config.split, name):
            raise UsageError(
                f"split.{name}: real sites do not give rows away; declare a file {name} in {declaration.file}"
            )


def read_files(name: str, data: Path, test: Path | None, config: Config, declared: str) -> SiteFiles:
    """Return what a site holds: its own files, read as the coordinator's declaration says."""
    # A site's test rows come from its own file, whatever the other sites have.
    declaration = replace(parse(declared), test=str(test or ""))
    reading = read_site(name, data, test, declaration)
    share, data_seed = config.split.test, config.run.data_seed
    return site_files(declaration, reading, share, data_seed, tested_groups([reading.rows], share, data_seed))


def central_of(declaration: Declaration) -> ServerFiles:
    """Return what the coordinator holds: a common test set, public inputs, trusted rows."""
    # Each site describes its own test set.
    return replace(server_files(read_server(declaration)), one_test=False, common_group=None)
