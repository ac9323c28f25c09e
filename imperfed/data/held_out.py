"""Rows that each site holds out from its own training rows, with the labels that it has, to judge rounds by."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation, HeldOut
from imperfed.data.federate import FederatedData, label_facts
from imperfed.data.partitions.base import RowPartition
from imperfed.data.row_names import taken
from imperfed.data.row_split import share_of
from imperfed.data.split import SplitConfig

STREAM = 10
"""Beside `row_split.STREAMS`; each site draws from a stream of its own, as it does on its own machine."""


def share_at_sites(split: SplitConfig) -> float:
    """Return the share of its rows that each site holds out; a partition by label holds rows out at no site."""
    return split.validation if isinstance(split.partition, RowPartition) else 0.0


def hold_out(data: FederatedData, share: float, data_seed: int) -> FederatedData:
    """Return the data with a share of each site's training rows held out.

    They are the rows as the site has them, attacked or repaired where that happened: a real site knows no others.
    Their truth, if there is any, is dropped.
    """
    federation = data.federation
    if federation.elsewhere or not share:
        return data
    if federation.validation is not None:
        raise UsageError(f"split.validation = {share}: {federation.name} holds rows out already; leave it out")
    kept, held = rows_by_site(federation, share, data_seed)
    federation = take(federation, kept, held)
    truth = data.oracle.truth
    oracle = data.oracle if truth is None else replace(data.oracle, truth=truth[torch.cat(kept)])
    facts = {"rows": federation.sizes(), "held_out_rows": list(map(len, held))} | label_facts(federation, oracle)
    return replace(data, federation=federation, oracle=oracle, facts=data.facts | facts)


def rows_by_site(federation: Federation, share: float, data_seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the numbers of the rows that each site trains on and of those that it holds out, both in order."""
    kept, held = [], []
    for name, (start, stop) in zip(federation.sites, pairwise(federation.starts), strict=True):
        together = None if federation.together is None else federation.together[start:stop]
        drawn = draw(name, stop - start, together, share, data_seed)
        kept.append((~drawn).nonzero().flatten() + start)
        held.append(drawn.nonzero().flatten() + start)
    return kept, held


def draw(site: str, rows: int, together: Tensor | None, share: float, data_seed: int) -> Tensor:
    """Draw the rows that a site holds out, bool [n]: of no more than the share, and never all of them.

    It depends on nothing but the site's own rows and name, so that a real site draws as a simulated one does. Rows
    that belong together stay together.
    """
    own = int.from_bytes(hashlib.blake2b(site.encode(), digest_size=8).digest(), "big")
    generator, most = np.random.default_rng([data_seed, STREAM, own]), share_of(share, rows)
    if together is None:
        drawn = torch.zeros(rows, dtype=torch.bool)
        drawn[torch.from_numpy(generator.permutation(rows)[:most])] = True
        return drawn
    groups, group, sizes = together.unique(return_inverse=True, return_counts=True)
    chosen = torch.zeros(len(groups), dtype=torch.bool)
    for number in generator.permutation(len(groups)).tolist():
        if int(sizes[number]) <= most:
            chosen[number], most = True, most - int(sizes[number])
    return chosen[group]


def take(federation: Federation, kept: list[Tensor], held: list[Tensor]) -> Federation:
    """Return the federation with these rows to train on, and those held out."""
    train, rows, at = torch.cat(kept), torch.cat(held), federation.at
    validation = HeldOut(
        federation.x[rows if at is None else at[rows]],
        federation.labels.take(rows),
        tuple(accumulate(map(len, held), initial=0)),
    )
    return replace(
        federation,
        x=federation.x[train] if at is None else federation.x,
        at=None if at is None else at[train],
        labels=federation.labels.take(train),
        ids=taken(federation.ids, train),
        starts=tuple(accumulate(map(len, kept), initial=0)),
        together=None if federation.together is None else federation.together[train],
        annotators=federation.annotated_by_site(),
        validation=validation,
    )
