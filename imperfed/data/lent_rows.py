"""Rows that simulated sites lend to the server: trusted rows, and public inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Trusted
from imperfed.core.labels import Exact
from imperfed.data.files.reading import Reading
from imperfed.data.row_split import share_of, stream
from imperfed.data.site_files import ServerFiles, SiteFiles
from imperfed.data.trusted import draw_rows


def lend_trusted(reading: Reading, server: ServerFiles, share: float, data_seed: int) -> tuple[Reading, ServerFiles]:
    """Move a share of the sites' rows, with their truth, to the server."""
    if not share:
        return reading, server
    declaration = reading.declaration
    known = all(site.rows.truth is not None for site in reading.sites)
    if reading.trusted is not None or not known:
        reason = "has a trusted file already" if reading.trusted is not None else "has no truth for such rows"
        fix = f'declare trusted = "trusted.csv" or truth in {declaration.file}'
        fix = "hand over trusted=... or truth=..." if declaration.in_memory else fix
        raise UsageError(f"split.trusted = {share}: {declaration.name} {reason}; leave it out, or {fix}")
    sizes = [len(site.rows) for site in reading.sites]
    lent, kept = (
        np.split(rows, np.searchsorted(rows, np.cumsum(sizes)[:-1]))
        for rows in draw_rows(sum(sizes), share, stream(data_seed, "trusted"))
    )
    firsts = np.cumsum([0, *sizes[:-1]])
    parts = [site.rows.take(rows - first) for site, rows, first in zip(reading.sites, lent, firsts, strict=True)]
    truth = torch.cat([part.truth for part in parts if part.truth is not None])
    if truth.ndim > 1:
        raise DataError(
            f"{declaration.name}: rows at the server are labelled with one true class, but these rows may have "
            "several; leave split.trusted out"
        )
    trusted = Trusted(torch.cat([part.x for part in parts]), Exact(truth, len(server.classes)))
    sites = tuple(
        replace(site, rows=site.rows.take(rows - first))
        for site, rows, first in zip(reading.sites, kept, firsts, strict=True)
    )
    return replace(reading, sites=sites), replace(server, trusted=trusted)


def lend_public(
    server: ServerFiles, sites: Sequence[SiteFiles], share: float, generator: np.random.Generator
) -> tuple[ServerFiles, list[SiteFiles]]:
    """Move a share of the test inputs to the server as public inputs, unless it has a file of them."""
    file, share = server.public, share if server.public is None else 0.0
    origin, lent, remaining = "the test rows of the sites", list[Tensor](), list[SiteFiles]()
    if server.common is not None:
        origin, (x, y) = "the official test set", server.common
        public, common = torch.from_numpy(generator.permutation(len(x))).tensor_split([share_of(share, len(x))])
        group = None if server.common_group is None else server.common_group[common]
        server, lent = replace(server, common=(x[common], y[common]), common_group=group), [x[public]]
        remaining = list(sites)
    for site in sites if server.common is None else ():
        if site.test is not None:
            x, y = site.test  # in random order already
            cut = share_of(share, len(x))
            lent.append(x[:cut])
            group = None if site.test_group is None else site.test_group[cut:]
            site = replace(site, test=(x[cut:], y[cut:]), test_group=group)
        remaining.append(site)
    if file is None and lent:
        server = replace(server, public=torch.cat(lent), public_from=origin)
    return server, remaining
