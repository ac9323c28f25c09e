"""The user's own files: from the rows of a file to what each site and the server hold.

Each site's rows are split into training and test rows by the same function, whether the site is one of many in this
process or runs alone on its own machine. No rows or labels are generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Attribute, Federation, Trusted
from imperfed.core.labels import Exact
from imperfed.data.attributes import leave_unscaled, true_groups
from imperfed.data.federate import FederatedData, label_facts
from imperfed.data.files.blanks import column_fills, width
from imperfed.data.files.declaration import Declaration
from imperfed.data.files.reading import Reading, SiteReading
from imperfed.data.files.rows import FileRows
from imperfed.data.files.site_names import name_trouble
from imperfed.data.labelling import Facts, LabelConfig
from imperfed.data.lent_rows import lend_public, lend_trusted
from imperfed.data.oracle import Oracle
from imperfed.data.row_split import check_shares, cut_site, share_of, stream
from imperfed.data.scale import Scale
from imperfed.data.site_files import ServerFiles, SiteFiles
from imperfed.data.split import SplitConfig
from imperfed.data.whole_federation import put_together

COUNT = ("test", "validation", "public", "trusted")
"""The settings of a split that apply to sites read from files."""


def federate_files(reading: Reading, split: SplitConfig, labelling: LabelConfig, data_seed: int) -> FederatedData:
    """Return the sites that were read, with their test sets, the public inputs and the rows at the server."""
    if data_seed < 0:
        raise UsageError(f"data_seed must not be negative; got {data_seed}")
    check_shares(split)
    declaration = reading.check().declaration
    refuse_settings(declaration, split, labelling)
    server = server_files(reading)
    reading, server = lend_trusted(reading, server, split.trusted, data_seed)
    tested = tested_groups(all_rows(reading), split.test, data_seed)
    read = list(reading.sites)
    del reading  # what was read of a site is freed once it has been cut, if nobody else needs it
    sites = [site_files(declaration, read.pop(0), split.test, data_seed, tested) for _ in range(len(read))]
    server, sites = lend_public(server, sites, split.public, stream(data_seed, "public"))
    scale = scale_of(declaration, sites)
    federation, oracle = put_together(server, sites, scale)
    facts = {"labels": federation.labels.kind} | federation.labels.given_facts(federation.sizes(), oracle.truth)
    return FederatedData(federation, oracle, facts | count_rows(server, sites) | label_facts(federation, oracle), scale)


def federate_ready(federation: Federation) -> FederatedData:
    """Return a federation that the caller made; nothing is known about its truth, and its inputs are not scaled."""
    federation.check()
    for site in federation.sites:
        if trouble := name_trouble(site):
            raise DataError(f"{federation.name}, sites: found {trouble}; rename the site")
    oracle = Oracle(None, (), ())
    public, trusted = len(federation.public), federation.trusted
    facts: Facts = {
        "labels": federation.labels.kind,
        **federation.labels.given_facts(federation.sizes(), None),
        "rows": federation.sizes(),
        "test_rows": [0] * len(federation.sites),
        "common_test": False,
        "common_test_rows": 0,
        "rows_left_out": 0,
        "public_rows": public,
        "public_from": "the caller" if public else "nowhere",
        "trusted_rows": 0 if trusted is None else len(trusted.x),
    }
    return FederatedData(federation, oracle, facts | label_facts(federation, oracle), Scale.none())


def refuse_settings(declaration: Declaration, split: SplitConfig, labelling: LabelConfig) -> None:
    """Refuse settings of the split or the labels that the files already determine."""
    for section, config in (("split", split), ("labels", labelling)):
        for spec in fields(config):
            name, value = spec.name, getattr(config, spec.name)
            if value == spec.default or (section == "split" and name in COUNT):
                continue
            if section == "labels" and (name, value) == ("kind", declaration.labels.kind):
                continue
            what = "sites and their rows" if section == "split" else f"labels ({declaration.labels.kind})"
            fix = (
                "tables; leave it out"
                if declaration.in_memory
                else f"files; leave it out, or change {declaration.file}"
            )
            raise UsageError(f"{section}.{name} = {value}: the {what} of {declaration.name} are fixed by its {fix}")


def site_files(
    declaration: Declaration, site: SiteReading, share: float, data_seed: int, tested: frozenset[str]
) -> SiteFiles:
    """Return what a site holds. Without a declared test file, a share of its rows is held out for testing.

    `tested`: the groups of rows to test on, if rows are declared to belong together.
    """
    rows, truth, group = site.rows, measured_by(site.rows), true_group(site.rows, declaration)
    train, test, test_group = torch.arange(len(rows)), None, None
    if share and declaration.measured and not declaration.test:
        assert truth is not None
        of_group = None if rows.together is None else torch.from_numpy(np.isin(rows.together, [*tested]))
        instead = "hand over test=..." if declaration.in_memory else "declare a test file in federation.toml"
        fix = f"add rows to {rows.table.file}, remove the site, or {instead}"
        where = f"{declaration.name}, {site.name}"
        train, kept = cut_site(torch.arange(len(rows)), share, stream(data_seed, "test"), of_group, where, fix)
        test, test_group = (rows.x[kept], truth[kept]), None if group is None else group[kept]
    elif site.test is not None:
        test, test_group = measured_on(site.test), true_group(site.test, declaration)
    ids = rows.ids()
    assert rows.labels is not None
    return SiteFiles(
        site.name,
        rows.x[train],
        rows.labels.take(train),
        ids.take(train),
        declaration.labels.classes,
        test,
        test_group,
        None if rows.truth is None else rows.truth[train],
        attribute_of(declaration, rows.x),
        scales=declaration.inputs.standardise is not False,
        together=None
        if rows.together is None
        else torch.from_numpy(np.unique(rows.together, return_inverse=True)[1])[train],
        fills=column_fills(declaration.inputs),
    )


def measured_by(rows: FileRows) -> Tensor | None:
    """Return what models are tested against: the truth, or else labels that can stand in for it."""
    if rows.truth is None and rows.labels is not None and rows.labels.measurable:
        return rows.labels.values
    return rows.truth


def measured_on(rows: FileRows | None) -> tuple[Tensor, Tensor] | None:
    """Return inputs and true classes; None if there are none."""
    truth = None if rows is None else measured_by(rows)
    return None if rows is None or truth is None else (rows.x, truth)


def true_group(rows: FileRows, declaration: Declaration) -> Tensor | None:
    """Return the true group of every row, from its own column or from the inputs; None if it is unknown."""
    if declaration.attribute is None or declaration.attribute.truth:
        return rows.group
    return true_groups(rows.x, attribute_of(declaration, rows.x))


def attribute_of(declaration: Declaration, x: Tensor | None) -> Attribute | None:
    """Return the sensitive attribute: its groups are the last columns, after the numbers and the categories.

    `x`: any rows; None if there are no rows in this process.
    """
    if (column := declaration.attribute) is None:
        return None
    first = width(declaration.inputs) if x is None else x.shape[1] - len(column.values)
    return Attribute(column.column, column.values, first)


def tested_groups(parts: Iterable[FileRows], share: float, data_seed: int) -> frozenset[str]:
    """Draw the groups of rows to test on, once for all sites, because two of them may hold rows of the same group."""
    names = [rows.together for rows in parts if rows.together is not None]  # the server's rows belong to none
    distinct = np.unique(np.concatenate(names)) if names else np.empty(0, np.str_)
    drawn = stream(data_seed, "groups").permutation(len(distinct))[: share_of(share, len(distinct))]
    return frozenset(distinct[drawn].tolist())


def server_files(reading: Reading) -> ServerFiles:
    """Return what the server itself holds: a test set for all sites, public inputs, trusted rows."""
    declaration, parts = reading.declaration, [*all_rows(reading)]
    classes = declaration.labels.classes
    return ServerFiles(
        declaration.name,
        classes,
        None if reading.public is None else reading.public.x,
        trusted_rows(reading.trusted, len(classes)),
        measured_on(reading.test),
        attribute=attribute_of(declaration, parts[0].x if parts else None),
        one_test=reading.test is not None,
        common_group=None if reading.test is None else true_group(reading.test, declaration),
        public_from="a file",
        fills=column_fills(declaration.inputs),
        scales=declaration.inputs.standardise is not False,
    )


def all_rows(reading: Reading) -> Iterable[FileRows]:
    """Yield all rows that were read, the sites' training rows first."""
    for site in reading.sites:
        yield site.rows
    for rows in (*(site.test for site in reading.sites), reading.test, reading.public, reading.trusted):
        if rows is not None:
            yield rows


def trusted_rows(rows: FileRows | None, classes: int) -> Trusted | None:
    """Return the rows at the server, each with its true class."""
    if rows is None:
        return None
    if rows.truth is None or rows.truth.ndim > 1:
        raise DataError(f"{rows.table.file}: rows at the server need one true class each")
    return Trusted(rows.x, Exact(rows.truth, classes))


def scale_of(declaration: Declaration, sites: Sequence[SiteFiles]) -> Scale:
    """Return the declared scale: by default tables are standardised and images are not."""
    standardise = declaration.inputs.standardise
    if standardise is None:
        standardise = sites[0].x.ndim == 2
    fills = sites[0].fills
    if not standardise and not fills:
        return Scale.none()
    scale = Scale.of_files([site.moments() for site in sites], fills, standardise)
    if len(scale.mean):
        leave_unscaled(scale.mean, scale.spread, sites[0].attribute)
    return scale


def count_rows(server: ServerFiles, sites: Sequence[SiteFiles]) -> Facts:
    """Return the numbers of training, test, public and trusted rows."""
    public = 0 if server.public is None else len(server.public)
    return {
        "rows": [len(site.x) for site in sites],
        "test_rows": [0 if site.test is None else len(site.test[0]) for site in sites],
        "common_test": server.one_test,
        "common_test_rows": 0 if server.common is None else len(server.common[0]),
        "rows_left_out": 0,
        "public_rows": public,
        "public_from": server.public_from if public else "nowhere",
        "trusted_rows": 0 if server.trusted is None else len(server.trusted.x),
    }
