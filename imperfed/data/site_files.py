"""Federated data in parts: what each site holds and what the coordinator holds, according to their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.federation import Attribute, Federation, HeldOut, Trusted
from imperfed.core.labels import KINDS, Labels
from imperfed.data.attributes import leave_unscaled
from imperfed.data.federate import FederatedData
from imperfed.data.fill import ColumnFill, median_places
from imperfed.data.moments import Moments
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.data.site_description import SiteInfo, check_alike
from imperfed.data.sparse import width


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
        """Return the sums over the inputs before they are scaled and blanks are filled."""
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
            leave_unscaled(scale.mean, scale.spread, self.attribute)
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
