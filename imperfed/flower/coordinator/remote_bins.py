"""The bins of a table's columns, learned from remote sites: each counts its own values over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from imperfed.core.errors import QuorumError
from imperfed.data.bins import CELLS, edges_of
from imperfed.data.site_description import SiteInfo
from imperfed.engine.failures import Failure, Misshapen
from imperfed.engine.population import lowering
from imperfed.engine.validate import REFUSED
from imperfed.flower.messages.charging import charged
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.transport import Transport


def edges_from_sites(
    transport: Transport, run_infos: Sequence[RunInfo], infos: Sequence[SiteInfo], bins: int, max_share: float
) -> Tensor:
    """Return the edges of the bins of every column; `run_infos` tell the sites how their inputs are scaled.

    `max_share`: the most weight of one site by the rows it says it has.
    """
    payloads = {k: run_info.payload() for k, run_info in enumerate(run_infos)}
    replies = transport.send("query.count", payloads, "counts for bins")
    answers = [charged(partial(checked, replies[k], info)) for k, info in enumerate(infos)]
    failed = [f"{i.name}: {a.reason}" for i, a in zip(infos, answers, strict=True) if isinstance(a, Failure)]
    if failed:
        raise QuorumError(f"bins need the counts of every site. {'; '.join(failed)}")
    lowered = lowering([info.rows for info in infos], max_share)
    counts = [c.long() for c in answers if not isinstance(c, Failure)]
    return edges_of([c if by == 1 else (c * by).long() for c, by in zip(counts, lowered, strict=True)], bins)


def checked(reply: Payload | Failure, info: SiteInfo) -> Tensor | Failure:
    """Return the counts that a site sent if they can be true: every column has as many values as there are rows."""
    if isinstance(reply, Failure):
        return reply
    counts, shape = reply.trees.get("counts", {}).get("cells"), (*info.shape, CELLS)
    if counts is None or counts.shape != shape or counts.dtype != torch.int32:
        return Misshapen(f"{REFUSED}expected counts of shape {shape}, int32")
    if (counts < 0).any() or (counts.sum(1) != info.rows).any():
        return Misshapen(f"{REFUSED}the counts of a column are not those of {info.rows} rows")
    return counts
