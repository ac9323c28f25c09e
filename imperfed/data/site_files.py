"""Federated data in parts: what each site holds, what the coordinator holds, and what sites report about themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute, Federation, HeldOut, Trusted
from imperfed.core.foreign_text import printable
from imperfed.core.labels import KINDS, Labels
from imperfed.core.lazy import LazyRows
from imperfed.data.attributes import spare
from imperfed.data.federate import FederatedData
from imperfed.data.fill import ColumnFill, median_places
from imperfed.data.moments import Moments
from imperfed.data.oracle import Oracle
from imperfed.data.row_names import one_after_another
from imperfed.data.scale import Scale
from imperfed.data.sparse import same_length, width


@dataclass(frozen=True)
class SiteInfo:
    """What a site reports about itself before a run: row counts, kind of labels, sums for scaling. Never a row."""

    name: str
    rows: int
    kind: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """The shape of one input."""
    features: int
    """The number of features of sparse inputs; 0 if they are not sparse."""
    tests: int
    """The number of test rows; -1 without a test set."""
    several: bool
    """Whether a test row may have several classes."""
    sums: Tree
    """Count, sum and sum of squares of every feature, and quantiles of those whose blanks are filled by medians; empty
    if inputs are neither scaled nor filled."""
    annotated: Tree
    """The classes that the site annotates, if labels may be missing."""
    held_out: int = 0
    """The number of rows that the site holds out; they are not among `rows`."""
    digest: str = ""
    """Of all its rows, with a key that the coordinator does not know: the same as long as the files are."""


@dataclass(frozen=True)
class SiteFiles:
    """What one site holds, according to its files."""

    name: str
    x: Tensor
    labels: Labels
    ids: Sequence[str]
    classes: tuple[str, ...]
    test: tuple[Tensor, Tensor] | None = None
    """Inputs and true classes of the site's own test rows."""
    test_group: Tensor | None = None
    truth: Tensor | None = None
    attribute: Attribute | None = None
    scales: bool = True
    """Whether the inputs have yet to be scaled by the sums of all sites."""
    together: Tensor | None = None
    """Which rows belong together, if any do."""
    fills: tuple[ColumnFill, ...] = ()
    """How blanks (NaN) are filled."""
    digest: str = ""
    """Of all rows, by which it is noticed that a file has changed; empty: not known."""

    def moments(self) -> Moments:
        """Return what is told of the inputs before they are scaled and blanks are filled."""
        if self.x.ndim == 2:
            return Moments.of_table(self.x, median_places(self.fills))
        return Moments.of(self.x)

    def info(self, standardise: bool = False, held_out: int = 0) -> SiteInfo:
        """Return what leaves the site before a run; with `standardise`, images are scaled as well.

        `held_out`: how many of the rows the site will not train on; they count in the sums, as their inputs are scaled.
        """
        annotated = {"classes": self.labels.annotated_classes()} if self.labels.partial else {}
        return SiteInfo(
            self.name,
            len(self.x) - held_out,
            self.labels.kind,
            self.classes,
            tuple(self.x.shape[1:]),
            width(self.x),
            -1 if self.test is None else len(self.test[1]),
            self.test is not None and self.test[1].ndim > 1,
            self.moments().tree() if (self.scales and (self.x.ndim == 2 or standardise)) or self.fills else {},
            annotated,
            held_out,
        )

    def data(self, scale: Scale, annotated: Tree | None = None) -> FederatedData:
        """Return the site as a federation of one; `annotated`: the classes that at least one site annotates."""
        federation = Federation(
            f"the data of {self.name}",
            scale(self.x),
            self.labels,
            (0, len(self.x)),
            (self.name,),
            self.classes,
            self.ids,
            public=scale(self.x[:0]),
            attribute=self.attribute,
            annotators=self._annotators(annotated),
            together=self.together,
        ).check()
        x, y = self.test if self.test is not None else (self.x[:0], torch.empty(0, dtype=torch.int64))
        tests = 0 if self.test is None else 1
        groups = () if self.test_group is None else (self.test_group,)
        return FederatedData(
            federation, Oracle(self.truth, (scale(x),)[:tests], (y,)[:tests], test_group=groups), {}, scale
        )

    def _annotators(self, annotated: Tree | None) -> Tensor | None:
        """Return which classes this site annotates and, in a second row, which ones at least one site does."""
        if not self.labels.partial or not annotated:
            return None
        return torch.stack([self.labels.annotated_classes(), annotated["classes"]])


@dataclass(frozen=True)
class ServerFiles:
    """What the coordinator itself holds, according to its files."""

    name: str
    classes: tuple[str, ...]
    public: Tensor | None = None
    trusted: Trusted | None = None
    common: tuple[Tensor, Tensor] | None = None
    """A test set that belongs to no site."""
    validation: tuple[Tensor, Tensor] | None = None
    attribute: Attribute | None = None
    tasks: tuple[int, ...] = field(default=())
    one_test: bool = False
    """Whether every site's test set is the common one."""
    common_group: Tensor | None = None
    """The true group of every row of the common test set, if it is known."""
    public_from: str = ""
    """Where the public inputs come from, in words."""
    fills: tuple[ColumnFill, ...] = ()
    """How blank inputs are filled."""
    scales: bool = True
    """Whether inputs are scaled if the sites send sums."""

    def scale(self, infos: Sequence[SiteInfo]) -> Scale:
        """Return the scale of the inputs from the sums of all sites."""
        check_alike(infos, self.classes)
        if not infos[0].sums:
            return Scale.none()
        scale = Scale.of_files([Moments.of_tree(info.sums) for info in infos], self.fills, self.scales)
        if len(scale.mean):
            spare(scale.mean, scale.spread, self.attribute)
        return scale

    def data(self, infos: Sequence[SiteInfo], scale: Scale, groups: tuple[int, ...] = ()) -> FederatedData:
        """Return the federation as the coordinator knows it: the number of rows at each site, but none of the rows."""
        first = infos[0]
        nothing = torch.empty(0, *first.shape)
        public = nothing if self.public is None else scale(self.public)
        trusted = self.trusted and replace(self.trusted, x=scale(self.trusted.x))
        federation = Federation(
            self.name,
            nothing,
            KINDS[first.kind].empty(len(self.classes)),
            tuple(accumulate((info.rows for info in infos), initial=0)),
            tuple(info.name for info in infos),
            self.classes,
            (),
            public,
            trusted=trusted,
            groups=groups,
            attribute=self.attribute,
            annotators=torch.stack([info.annotated["classes"] for info in infos]) if first.annotated else None,
            validation=self._held_out(infos, nothing),
        )
        y = torch.empty(0, len(self.classes), dtype=torch.int8) if first.several else torch.empty(0, dtype=torch.int64)
        tested = len(infos) if first.tests >= 0 else 0
        common_x, common_y = (None, None) if self.common is None else (scale(self.common[0]), self.common[1])
        tests = tested * (nothing,), tested * (y,)
        oracle = Oracle(None, *tests, common_x, common_y, self.one_test, self.tasks)
        if self.validation is not None:
            oracle = replace(oracle, validation_x=scale(self.validation[0]), validation_y=self.validation[1])
        facts = {
            "labels": first.kind,
            "rows": [info.rows for info in infos],
            "test_rows": [max(info.tests, 0) for info in infos],
            "common_test_rows": 0 if self.common is None else len(self.common[1]),
            "rows_left_out": 0,
            "public_rows": len(public),
            "public_from": "the coordinator's files",
            "trusted_rows": 0 if trusted is None else len(trusted.x),
        }
        if federation.validation is not None:
            facts["held_out_rows"] = federation.validation.sizes()
        return FederatedData(federation, oracle, facts, scale)

    def _held_out(self, infos: Sequence[SiteInfo], nothing: Tensor) -> HeldOut | None:
        """Return how many rows each site holds out; None if none does."""
        if not any(info.held_out for info in infos):
            return None
        no_labels = KINDS[infos[0].kind].empty(len(self.classes))
        return HeldOut(nothing, no_labels, tuple(accumulate((info.held_out for info in infos), initial=0)))


def check_alike(infos: Sequence[SiteInfo], classes: tuple[str, ...]) -> None:
    """Refuse sites whose data cannot be combined in one run, naming the site that differs from most."""
    if empty := [info.name for info in infos if info.rows < 1]:
        raise DataError(f"{empty[0]}: the site has no training rows")
    for what, values in (
        ("classes", [info.classes for info in infos]),
        ("kind of labels", [info.kind for info in infos]),
        ("shape of an input", [info.features or info.shape for info in infos]),
        ("test rows", [info.tests >= 0 for info in infos]),
        ("sums", [shapes(info.sums) for info in infos]),
        ("annotated classes", [shapes(info.annotated) for info in infos]),
    ):
        usual = Counter(map(str, values)).most_common(1)[0][0]
        expected = str(classes) if what == "classes" else usual
        for info, value in zip(infos, map(str, values), strict=True):
            if value != expected:
                differs = f"its {what} ({printable(value)}) differ from the other sites' ({printable(expected)})"
                raise DataError(f"{info.name}: {differs}")


def shapes(tree: Tree) -> dict[str, tuple[int, ...] | str]:
    """Return what tensors must share to be added up: their shapes; tensors that are not finite match none."""
    return {name: tuple(t.shape) if torch.isfinite(t).all() else "not finite" for name, t in tree.items()}


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
