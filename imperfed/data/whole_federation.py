"""A federation as a whole and in parts: put together in this process, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.lazy import LazyRows
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.row_names import one_after_another
from imperfed.data.scale import Scale
from imperfed.data.site_files import ServerFiles, SiteFiles
from imperfed.data.sparse import same_length, width


def taken_apart(data: FederatedData) -> tuple[ServerFiles, list[SiteFiles]]:
    """Return what the coordinator and each site would hold of federated data, which are already scaled."""
    fed, oracle = data.federation, data.oracle
    common, validation = (
        None if x is None or y is None else (x, y)
        for x, y in ((oracle.common_x, oracle.common_y), (oracle.validation_x, oracle.validation_y))
    )
    facts = fed.attribute, oracle.tasks, oracle.one_test
    server = ServerFiles(fed.name, fed.classes, fed.public, fed.trusted, common, validation, *facts)
    sites = []
    for k, name in enumerate(fed.sites):
        a, b = fed.starts[k], fed.starts[k + 1]
        sites.append(
            SiteFiles(
                name,
                fed.inputs(a, b),
                fed.labels.between(a, b),
                fed.ids[a:b],
                fed.classes,
                (oracle.test_x[k], oracle.test_y[k]) if oracle.test_x else None,
                oracle.test_group[k] if oracle.test_group else None,
                None if oracle.truth is None else oracle.truth[a:b],
                fed.attribute,
                scales=False,
                together=None if fed.together is None else fed.together[a:b],
            )
        )
    return server, sites


def all_inputs(sites: Sequence[Tensor], scale: Scale) -> Tensor:
    """Return the inputs of all sites, scaled, with no other copy of them on the way."""
    if width(sites[0]):
        return scale(torch.cat(same_length(sites)))
    if isinstance(sites[0], LazyRows):
        return scale(torch.cat([*sites]))
    x = sites[0].new_empty(sum(map(len, sites)), *sites[0].shape[1:])
    for place, inputs in zip(x.split([*map(len, sites)]), sites, strict=True):
        place.copy_(scale(inputs))
    return x


def put_together(server: ServerFiles, sites: Sequence[SiteFiles], scale: Scale) -> tuple[Federation, Oracle]:
    """Return what server and sites hold as one federation in this process, its inputs scaled, and the truth about it.

    Ranked labels are tested on one common test set, and no site has its own.
    """
    x = all_inputs([site.x for site in sites], scale)
    labels = replace(sites[0].labels, values=torch.cat([site.labels.values for site in sites]))
    federation = Federation(
        name=server.name,
        x=x,
        labels=labels,
        starts=tuple(accumulate((len(site.x) for site in sites), initial=0)),
        sites=tuple(site.name for site in sites),
        classes=server.classes,
        ids=one_after_another([site.ids for site in sites]),
        public=x[:0] if server.public is None else scale(server.public),
        trusted=server.trusted and replace(server.trusted, x=scale(server.trusted.x)),
        attribute=server.attribute,
        together=None
        if sites[0].together is None
        else torch.cat([s.together for s in sites if s.together is not None]),
    ).check()
    truths = [site.truth for site in sites if site.truth is not None]
    truth = torch.cat(truths) if len(truths) == len(sites) else None
    oracle = Oracle(truth, (), ())
    if server.common is not None:
        common = scale(server.common[0]), server.common[1]
        oracle = replace(oracle, common_x=common[0], common_y=common[1], one_test=server.one_test)
        tests, groups = [common] * len(sites), [server.common_group] * len(sites)
        if labels.ranked:
            return federation, oracle
    else:
        several = labels.several and (labels.measurable or truth is not None)
        no_truth = torch.empty(0, labels.classes, dtype=torch.int8) if several else torch.empty(0, dtype=torch.int64)
        tests = [(x[:0], no_truth) if site.test is None else (scale(site.test[0]), site.test[1]) for site in sites]
        groups = [site.test_group for site in sites]
    known = tuple(group for group in groups if group is not None)
    return federation, replace(
        oracle,
        test_x=tuple(x for x, _ in tests),
        test_y=tuple(y for _, y in tests),
        test_group=known if len(known) == len(sites) else (),
    )
