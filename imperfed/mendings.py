"""What a repair leaves in a run's folder: the labels it suggests with its reasons, and how right they are."""

from __future__ import annotations

import math
from typing import Any

from imperfed.auxiliary import Mending
from imperfed.evaluate import Evaluator
from imperfed.federation import Federation
from imperfed.folder import Record, RunFolder


def write_mending(folder: RunFolder, name: str, mending: Mending, federation: Federation, judge: Evaluator) -> Record:
    """`labels/<site>.parquet`, and the figures of the repair for `summary.json`."""
    sites = []
    for k, site in enumerate(federation.sites):
        folder.save_table(f"labels/{site}.parquet", mended_table(federation, mending, k))
        group = federation.groups[k] if federation.groups else 0
        own = figures(mending, judge, federation.starts[k], federation.starts[k + 1]) or {}
        sites.append({"site": site, "group": group, "noise estimate": mending.noise[k], **own})
    return {
        "name": name,
        "n": len(mending.given),
        "changed": int((mending.given != mending.suggested).sum()),
        "figures": figures(mending, judge, 0, len(mending.given)),
        "groups": len(set(federation.groups)) or 1,
        "adjusted rand index": judge.rand_index(federation.groups),
        "sent": {name: list(shape) for name, shape in mending.sent.items()},
        "bytes": {"up": mending.up, "down": mending.down},
        "sites": sites,
    }


def figures(mending: Mending, judge: Evaluator, start: int, stop: int) -> Record | None:
    """The figures of these rows; None where truth is unknown, and for a share of nothing, as JSON has no NaN."""
    found = judge.mended(start, stop, mending.given[start:stop], mending.suggested[start:stop])
    return found and {name: value if math.isfinite(value) else None for name, value in found.items()}


def mended_table(federation: Federation, mending: Mending, site: int) -> dict[str, list[Any]]:
    """The columns of a site's label file."""
    a, b = federation.starts[site], federation.starts[site + 1]
    names = federation.classes
    return {
        "id": list(federation.ids[a:b]),
        "given": [names[c] for c in mending.given[a:b].tolist()],
        "suggested": [names[c] for c in mending.suggested[a:b].tolist()],
        "confidence": mending.confidence[a:b].tolist(),
        "reason": list(mending.reason[a:b]),
        "noise estimate": [mending.noise[site]] * (b - a),
    }
