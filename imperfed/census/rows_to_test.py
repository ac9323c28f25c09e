"""Whether every site has rows enough to be trained and tested on, before a run would refuse it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from imperfed.data.files.problems import listed
from imperfed.data.files.reading import Reading, SiteReading
from imperfed.data.own_files import all_rows, tested_groups
from imperfed.data.split import SplitConfig


def sites_too_small_to_test(reading: Reading) -> tuple[str, ...]:
    """Return the sites of which a run with its defaults would hold out all rows, or none, for testing."""
    declaration, share = reading.declaration, SplitConfig().test
    if declaration.test or not declaration.measured:
        return ()
    tested = tested_groups(all_rows(reading), share, data_seed=0) if declaration.group else frozenset()
    return tuple(site.name for site in reading.sites if not _can_be_cut(site, tested))


def _can_be_cut(site: SiteReading, tested: frozenset[str]) -> bool:
    if site.rows.together is None:
        return len(site.rows) > 1
    held_out = np.isin(site.rows.together, [*tested])
    return bool(held_out.any() and not held_out.all())


def few_rows_warnings(sites: Sequence[str]) -> tuple[str, ...]:
    """Return what to know if there are such sites."""
    if not sites:
        return ()
    return (
        f"too few rows to train and test on at {listed(sites)}: no model is tested (test=0) until they get more "
        "rows, are removed, or test files are declared",
    )
