"""A federation of the user's own files: its sites are given, and nothing about their rows or labels is made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute, Federation
from imperfed.core.labels import Annotated, Exact, Labels, Positive, Positives
from imperfed.data.attributes import spare, true_groups
from imperfed.data.dataset import Dataset
from imperfed.data.federate import (
    FederatedData,
    RowSplit,
    check_shares,
    facts_of,
    gather,
    keep_apart,
    seal,
    stream,
    take_public,
)
from imperfed.data.files.declaration import Declaration
from imperfed.data.files.reading import Reading
from imperfed.data.files.rows import FileRows
from imperfed.data.labelling import Facts, LabelConfig
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Moments, Scale
from imperfed.data.sparse import same_length
from imperfed.data.split import SplitConfig
from imperfed.data.trusted import set_apart

COUNT = ("test", "public", "trusted")
"""The settings of a split that mean something where sites come as files."""

UNKNOWN = -1
"""The true group of a row whose file does not name it."""

Part = tuple[str, int]
"""What rows are for, and the number of the site if they are of one."""


def federate_files(
    found: Reading,
    split: SplitConfig,
    labelling: LabelConfig,
    data_seed: int,
    merged: Callable[[Sequence[Moments]], Scale] = Scale.merged,
) -> FederatedData:
    """The sites of a reading, their test sets, public inputs and rows at the server.

    `merged` makes one scale of what the sites tell of their inputs; sites that are elsewhere can be asked by it.
    """
    if data_seed < 0:
        raise UsageError(f"data_seed must not be negative; given: {data_seed}")
    check_shares(split)
    refuse_settings(found.declaration, split, labelling)
    parts = parts_of(found)
    dataset, labels, at = join(found.check().declaration, parts)
    cut = cut_files(found, dataset, at, split, data_seed)
    scale = scale_of(found.declaration, dataset, cut, merged)
    federation = gather(dataset, cut, labels, scale, tuple(site.name for site in found.sites))
    oracle = seal(dataset, cut, scale)
    if not told_truly(found):
        oracle = replace(oracle, truth=None)
    if isinstance(labels, Positive | Positives) and dataset.test_x is not None:
        oracle = replace(oracle, test_x=(), test_y=())  # one short list of labels for all, as with one site a label
    oracle = replace(oracle, test_group=true_test_groups(parts, dataset, cut))
    facts = told(federation, oracle) | facts_of(federation, oracle, cut, len(dataset)) | {"rows_left_out": 0}
    return FederatedData(federation, oracle, facts, scale)


def refuse_settings(declaration: Declaration, split: SplitConfig, labelling: LabelConfig) -> None:
    """Refuse what was set of a split or of labels that the files settle."""
    for section, given in (("split", split), ("labels", labelling)):
        for spec in fields(given):
            name, value = spec.name, getattr(given, spec.name)
            if value == spec.default or (section == "split" and name in COUNT):
                continue
            if section == "labels" and (name, value) == ("kind", declaration.labels.kind):
                continue
            what = "sites and their rows" if section == "split" else f"labels ({declaration.labels.kind})"
            raise UsageError(
                f"{section}.{name} = {value}: the {what} of {declaration.name} are as its files say; leave it out, "
                f"or change {declaration.file}"
            )


def parts_of(found: Reading) -> dict[Part, FileRows]:
    """All rows that were read, those of the sites first."""
    parts: dict[Part, FileRows] = {("site", k): site.rows for k, site in enumerate(found.sites)}
    parts |= {("test", k): site.test for k, site in enumerate(found.sites) if site.test is not None}
    others = {"common": found.test, "public": found.public, "trusted": found.trusted}
    return parts | {(name, 0): rows for name, rows in others.items() if rows is not None}


def join(declaration: Declaration, parts: Mapping[Part, FileRows]) -> tuple[Dataset, Labels, dict[Part, Tensor]]:
    """All rows as one dataset, what the sites are told of them, and the row numbers of each part."""
    inputs = [rows.x for rows in parts.values()]
    x = torch.cat(same_length(inputs) if declaration.inputs.sparse else inputs)
    ends = accumulate((len(rows) for rows in parts.values()), initial=0)
    at = {part: torch.arange(a, b) for part, (a, b) in zip(parts, pairwise(ends), strict=True)}
    first = parts["site", 0].labels
    assert first is not None
    told = stacked(parts, lambda rows: None if rows.labels is None else rows.labels.values)
    y, common = stacked(parts, measured_by), at.get(("common", 0))
    dataset = Dataset(
        declaration.name,
        x,
        y,
        None,
        declaration.labels.classes,
        test_x=None if common is None else x[common],
        test_y=None if common is None else y[common],
        ids=tuple(name for (part, _), rows in parts.items() for name in _ids(part, rows)),
        attribute=_attribute(declaration, x),
        group=_groups(parts) if declaration.group else None,
    )
    return dataset, replace(first, values=told), at


def stacked(parts: Mapping[Part, FileRows], what: Callable[[FileRows], Tensor | None]) -> Tensor:
    """Something of all parts, one after the other; 0 for the rows of parts that do not have it."""
    values = [what(rows) for rows in parts.values()]
    usual = next((v for v in values if v is not None), torch.zeros(0, dtype=torch.int64))
    sizes = map(len, parts.values())
    return torch.cat(
        [usual.new_zeros(n, *usual.shape[1:]) if v is None else v for n, v in zip(sizes, values, strict=True)]
    )


def measured_by(rows: FileRows) -> Tensor | None:
    """The truth, or else labels that say all of a class."""
    if rows.truth is None and isinstance(rows.labels, Exact | Annotated):
        return rows.labels.values
    return rows.truth


def _groups(parts: Mapping[Part, FileRows]) -> Tensor:
    """A number for every name of a group; the same name is the same group at all sites."""
    names = [np.full(len(rows), "") if rows.together is None else rows.together for rows in parts.values()]
    return torch.from_numpy(np.unique(np.concatenate(names), return_inverse=True)[1])


def _attribute(declaration: Declaration, x: Tensor) -> Attribute | None:
    said = declaration.attribute
    return None if said is None else Attribute(said.column, said.values, x.shape[1] - len(said.values))


def _ids(part: str, rows: FileRows) -> tuple[str, ...]:
    return rows.ids() if part == "site" else ("",) * len(rows)


def told_truly(found: Reading) -> bool:
    """Whether the truth about the sites' rows is known."""
    return all(site.rows.truth is not None for site in found.sites)


def cut_files(
    found: Reading, dataset: Dataset, at: Mapping[Part, Tensor], split: SplitConfig, data_seed: int
) -> RowSplit:
    """Which rows the sites train on, and which they are measured on."""
    nobody = torch.empty(0, dtype=torch.int64)
    names = [site.name for site in found.sites]
    trusted, rest = _trusted(found, dataset, at, split, data_seed)
    left = torch.zeros(len(dataset), dtype=torch.bool)
    left[rest] = True
    train = [at["site", k][left[at["site", k]]] for k in range(len(names))]
    test = [at.get(("test", k), nobody) for k in range(len(names))]
    if split.test and found.declaration.measured and not found.declaration.test:
        # Each site by itself, so that it cuts its rows the same way where it is alone with them.
        fix = "add rows to {}, take the site out, or declare a test file in federation.toml"
        cuts = [
            keep_apart(dataset, split.test, [x.numpy()], [site.name], data_seed, fix.format(site.rows.table.file))
            for x, site in zip(train, found.sites, strict=True)
        ]
        train, test = [own for [own], _ in cuts], [own for _, [own] in cuts]
    share = replace(split, public=0.0) if found.public is not None else split
    cut = take_public(dataset, share, train, test, stream(data_seed, "public"))
    if found.public is not None:
        cut = replace(cut, public=dataset.x[at["public", 0]], public_from="a file")
    return replace(cut, trusted=trusted, common_test=dataset.test_x is not None)


def _trusted(
    found: Reading, dataset: Dataset, at: Mapping[Part, Tensor], split: SplitConfig, data_seed: int
) -> tuple[Tensor, Tensor]:
    """The rows that only the server holds, and those that are left to the sites."""
    sites = sum(len(site.rows) for site in found.sites)
    if split.trusted and (found.trusted is not None or not told_truly(found)):
        raise UsageError(
            f"split.trusted = {split.trusted}: {found.declaration.name} "
            + ("has a trusted file already" if found.trusted is not None else "has no truth for such rows")
            + f'; leave it out, or declare trusted = "trusted.csv" or truth in {found.declaration.file}'
        )
    theirs = replace(dataset, x=dataset.x[:sites], y=None if dataset.y is None else dataset.y[:sites])
    drawn, rest = set_apart(theirs, split.trusted, stream(data_seed, "trusted"))
    return at.get(("trusted", 0), torch.from_numpy(drawn)), torch.from_numpy(rest)


def scale_of(
    declaration: Declaration, dataset: Dataset, cut: RowSplit, merged: Callable[[Sequence[Moments]], Scale]
) -> Scale:
    """As declared: tables are standardised unless told otherwise, images where told so."""
    wanted = declaration.inputs.standardise
    if wanted is False or (wanted is None and dataset.x.ndim != 2):
        return Scale.none()
    scale = merged([Moments.of(dataset.x[rows]) for rows in cut.train])
    spare(scale.mean, scale.spread, dataset.attribute)
    return scale


def true_test_groups(parts: Mapping[Part, FileRows], dataset: Dataset, cut: RowSplit) -> tuple[Tensor, ...]:
    """The true group of every test row, a site each: as a column says, or as all rows of all files do."""
    known = true_groups(dataset.x, dataset.attribute)
    if any(rows.group is not None for rows in parts.values()):
        known = torch.cat(
            [torch.full((len(rows),), UNKNOWN) if rows.group is None else rows.group for rows in parts.values()]
        )
    if known is None:
        return ()
    tested = [known[rows] for rows in cut.test]
    if cut.common is not None:
        of = dict(zip(parts, known.split([len(rows) for rows in parts.values()]), strict=True))
        tested = [of["common", 0][cut.common]] * len(cut.test)
    return () if any((groups == UNKNOWN).any() for groups in tested) else tuple(tested)


def told(federation: Federation, oracle: Oracle) -> Facts:
    """What the labels are, and how many are wrong where that is known."""
    labels = federation.labels
    facts: Facts = {"labels": labels.kind}
    if labels.kind == "candidates":
        facts["sets"] = "given"
    if isinstance(labels, Annotated):
        facts["annotates"] = "given"
    if isinstance(labels, Exact) and oracle.truth is not None:
        wrong = (labels.values != oracle.truth).double().split(federation.sizes())
        facts |= {"noise": "given", "noise_rates": [float(site.mean()) for site in wrong]}
    return facts
