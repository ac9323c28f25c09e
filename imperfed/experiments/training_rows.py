"""The ids of the training rows, by which a run notices that its data have changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.data.row_names import listed_or_kept
from imperfed.results.folder import RunFolder


def split_of(federation: Federation) -> dict[str, Sequence[str]]:
    """Return the ids of the training rows by site."""
    ranges = zip(federation.sites, pairwise(federation.starts), strict=True)
    return {site: listed_or_kept(federation.ids[a:b]) for site, (a, b) in ranges}


def refuse_other_rows(folder: RunFolder, federation: Federation) -> None:
    """Refuse data that have changed since a run began: its training rows could now be among the test rows."""
    before, now = folder.split(), split_of(federation)
    changed = [site for site in before | now if before and before.get(site) != now.get(site)]
    if changed:
        first = changed[0]
        raise DataError(
            f"{federation.name}: the data have changed since {folder.path} was trained on them: other training rows at "
            f"{len(changed)} of {len(before | now)} sites ({first}: {len(before.get(first, ()))} rows then, "
            f"{len(now.get(first, ()))} now), so test rows may have been trained on. Restore the data as they were, "
            "or start a new run"
        )
