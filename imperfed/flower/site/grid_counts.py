"""A site's counts of its values over a grid, from which bins are learned: of enough rows, and on one grid."""

from __future__ import annotations

from dataclasses import replace

import torch

from imperfed.data.bins import count_cells
from imperfed.data.held_out import share_at_sites
from imperfed.data.moments import FEWEST
from imperfed.engine.failures import Declined
from imperfed.flower.messages.payload import Payload, RefusedError
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.agreement import digest
from imperfed.flower.site.reading_ledger import ReadingLedger
from imperfed.flower.site.runtime import LocalSite, own_data, reading_of
from imperfed.flower.site.withheld import WithheldError


def count(place: LocalSite, payload: Payload) -> Payload:
    """Return how many values of each column lie in each cell of a grid, from which the edges of bins are learned."""
    run_info = RunInfo.of(payload)
    config = run_info.config()
    files = place.files(config, run_info.declaration)
    refuse_few(place.name, len(files.x))
    pin_grid(place, run_info, files.digest)
    return Payload({}, {"counts": {"cells": count_cells(own_data(place, run_info, config).federation.x)}})


def refuse_few(name: str, rows: int) -> None:
    """Refuse to send sums or counts of few rows."""
    if rows < FEWEST:
        raise RefusedError(f"{name} has {rows} rows; sums of fewer than {FEWEST} say too much about each of them")


def pin_grid(place: LocalSite, run_info: RunInfo, rows: str) -> None:
    """Refuse to count on another grid than before: finer and finer ones would show the values themselves.

    `rows`: a digest of the site's rows.
    """
    config, ledger = run_info.config(), ReadingLedger.read(place.state)
    reading, scale = reading_of(place, run_info, config), digest(replace(run_info.scale, edges=torch.empty(0)).tree())
    known, about = ledger.of(reading), f"{rows}/{share_at_sites(config.split):g}/"
    before = [grid for grid in (known.grids if known else ()) if grid.startswith(about)]
    if about + scale in before:
        return
    if len(before) >= place.policy.most_readings:
        why = "counts on another grid: it has counted the values of these rows on one, and finer ones would show them"
        raise WithheldError(Declined(f"{place.name} refuses {why} (most_readings = {place.policy.most_readings})"))
    ledger.counted(reading, about + scale).write(place.state)
