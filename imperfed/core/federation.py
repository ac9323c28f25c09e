"""The training data of all sites and the data that the server holds. True labels never appear here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels import Exact, Labels
from imperfed.core.lazy import LazyRows


@dataclass(frozen=True)
class Trusted:
    """Labelled rows that only the server holds."""

    x: Tensor
    labels: Exact


@dataclass(frozen=True)
class HeldOut:
    """Rows that the sites hold out from training, with their labels as given, one site after the other.

    The labels stay in host memory, where they are compared with predictions.
    """

    x: Tensor
    labels: Labels
    starts: tuple[int, ...]
    """Site k holds out the rows starts[k] .. starts[k + 1] - 1; where the rows are elsewhere, only their numbers."""

    def at(self, site: int) -> tuple[Tensor, Labels]:
        """Return the rows that one site holds out."""
        start, stop = self.starts[site : site + 2]
        return self.x[start:stop], self.labels.between(start, stop)

    def sizes(self) -> list[int]:
        """Return the number of rows that each site holds out."""
        return [b - a for a, b in pairwise(self.starts)]


TO_TRUST = (
    "set split.trusted, such as 0.05, where true labels are known; or name the rows yourself: trusted = "
    '"trusted.csv" in federation.toml, trusted=... in Python, or the array `trusted` in an .npz file'
)
"""How to give the server labelled rows, for messages."""


@dataclass(frozen=True)
class Attribute:
    """A sensitive attribute: the columns of x that hold a row's membership in each of its groups."""

    name: str
    values: tuple[str, ...]
    first: int
    """The column of group v is first + v."""

    def of(self, x: Tensor) -> Tensor:
        """Return the membership of every row in every group, as a view."""
        return x[:, self.first : self.first + len(self.values)]


@dataclass(frozen=True)
class Federation:
    """The training data of all sites, one after the other in one tensor, without true labels."""

    name: str
    x: Tensor
    """The examples: one per row, unless `at` says otherwise."""
    labels: Labels
    starts: tuple[int, ...]
    """Site k holds the rows starts[k] .. starts[k + 1] - 1."""
    sites: tuple[str, ...]
    classes: tuple[str, ...]
    ids: Sequence[str]
    """A name for every row, the same in every run."""
    public: Tensor
    """Unlabelled inputs that the server may use; empty where there are none."""
    at: Tensor | None = None
    """The example of each row, where several sites may hold the same example; None: row i is example i."""
    trusted: Trusted | None = None
    groups: tuple[int, ...] = ()
    """The group of every site; the sites of a group share a model. Empty: one group."""
    attribute: Attribute | None = None
    annotators: Tensor | None = None
    """bool [K, C]: which classes each site annotates, where the rows are elsewhere; None: the labels here show it.

    At a real site: one row for the site itself and one for all sites together.
    """
    together: Tensor | None = None
    """int64 [n]: rows of a site with the same number belong together, such as a patient's; None: none do."""
    validation: HeldOut | None = None
    """Rows that the sites hold out to judge a round by; none of the rows above is among them."""

    @property
    def elsewhere(self) -> bool:
        """Whether the rows are at real sites, so that none of them is here."""
        return len(self.labels) == 0

    def check(self) -> Federation:
        """Check every invariant that training relies on; name the site and row of a problem."""
        self._check_form()
        for k, site in enumerate(self.sites):
            start, stop = self.starts[k], self.starts[k + 1]
            if stop <= start:
                raise DataError(
                    f"{self.name}, {site}: the site has no training rows; use fewer sites or another partition"
                )
            if not isinstance(self.x, LazyRows):  # those are checked when they are read
                self._check_inputs(site, start, self.inputs(start, stop))
            self.labels.between(start, stop).check(f"{self.name}, {site}")
        if self.validation is not None:
            self._check_held_out(self.validation)
        return self

    def _check_form(self) -> None:
        """Check the lengths, shapes and names of the parts, which a caller may have made."""
        rows = len(self.x) if self.at is None else len(self.at)
        if rows != len(self.labels) or self.starts[-1] != rows or len(self.ids) != rows:
            raise DataError(
                f"{self.name}: {rows} examples, but {len(self.labels)} labels, {self.starts[-1]} rows at the sites, "
                f"and {len(self.ids)} ids"
            )
        if self.x.ndim < 2 or not self.x.is_floating_point():
            raise DataError(
                f"{self.name}: the inputs are {self.x.dtype} of shape {tuple(self.x.shape)}; they must be real "
                "numbers, one row per example, [n, ...]"
            )
        if self.at is not None and len(self.at) and not 0 <= int(self.at.min()) <= int(self.at.max()) < len(self.x):
            raise DataError(f"{self.name}: `at` must hold numbers from 0 to {len(self.x) - 1}, one per row")
        if len(self.starts) != len(self.sites) + 1 or self.starts[0] != 0:
            raise DataError(
                f"{self.name}: {len(self.sites)} sites need {len(self.sites) + 1} starts, the first of them 0; found "
                f"{len(self.starts)} from {self.starts[0]} on"
            )
        if len(self.groups) not in (0, len(self.sites)):
            raise DataError(f"{self.name}: {len(self.groups)} groups for {len(self.sites)} sites; name one for each")
        if self.labels.classes != len(self.classes):
            raise DataError(
                f"{self.name}: {len(self.classes)} class names, but labels of {self.labels.classes} classes"
            )
        for what, names in (("sites", self.sites), ("classes", self.classes)):
            if len(set(names)) < len(names):
                twice = next(name for name in names if list(names).count(name) > 1)
                raise DataError(f"{self.name}: two {what} are called {twice!r}; rename one of them")

    def _check_inputs(self, site: str, start: int, x: Tensor) -> None:
        """Check that the inputs of a site are finite."""
        if x.sum().isfinite():  # one pass that copies nothing; finite numbers whose sum overflows are looked at below
            return
        finite = torch.isfinite(x.flatten(1)).all(1)
        if not finite.all():
            row = int((~finite).nonzero()[0])
            column = int((~torch.isfinite(x[row].flatten())).nonzero()[0])
            raise DataError(
                f"{self.name}, {site}, row {row} (id {self.ids[start + row]}), feature {column}: not a finite "
                f"number ({int((~finite).sum())} such rows at this site); fill or drop them first"
            )

    def _check_held_out(self, held: HeldOut) -> None:
        """Check the rows that the sites hold out, which a caller may have made."""
        sizes = {len(held.x), len(held.labels), held.starts[-1]}
        if len(held.starts) != len(self.starts) or len(sizes) > 1:
            raise DataError(
                f"{self.name}: the rows held out are {len(held.x)} examples with {len(held.labels)} labels, and "
                f"{held.starts[-1]} rows at {len(held.starts) - 1} sites"
            )
        if type(held.labels) is not type(self.labels) or held.x.shape[1:] != self.x.shape[1:]:
            raise DataError(f"{self.name}: the rows held out have other labels or other inputs than the training rows")
        if not isinstance(held.x, LazyRows) and not torch.isfinite(held.x).all():
            raise DataError(f"{self.name}: an input held out is not a finite number; fill or drop it first")
        held.labels.check(f"{self.name}, rows held out")

    def sizes(self) -> list[int]:
        """Return the number of rows at each site."""
        return [b - a for a, b in pairwise(self.starts)]

    def inputs(self, start: int, stop: int) -> Tensor:
        """Return the inputs of the rows start .. stop - 1; a view, unless several sites may hold the same example."""
        return self.x[start:stop] if self.at is None else self.x[self.at[start:stop]]

    def annotated_by_site(self) -> Tensor | None:
        """Return which classes each site annotates, bool [K, C]; None for labels that leave out no class.

        They are as `annotators` says, or as the training rows show.
        """
        if not self.labels.partial:
            return None
        if self.annotators is not None:
            return self.annotators
        return torch.stack([self.labels.between(a, b).annotated_classes() for a, b in pairwise(self.starts)])

    def to(self, device: torch.device) -> Federation:
        """Return the same data on a device."""
        trusted = self.trusted and Trusted(self.trusted.x.to(device), self.trusted.labels.to(device))
        return replace(
            self,
            x=self.x.to(device),
            labels=self.labels.to(device),
            public=self.public.to(device),
            at=None if self.at is None else self.at.to(device),
            trusted=trusted,
            validation=self.validation and replace(self.validation, x=self.validation.x.to(device)),
        )

    def without_inputs(self) -> Federation:
        """Return the same data after the inputs were given away; the first stays, which shows what inputs are like."""
        return replace(self, x=self.x[:1].clone(), at=None)

    def of_sites(self, sites: Collection[int]) -> Federation:
        """Return the rows of some sites, as a process needs them that trains these; all sites keep their numbers."""
        rows, starts = cut(self.starts, sites)
        held = self.validation
        if held is not None:
            kept, cuts = cut(held.starts, sites)
            held = HeldOut(held.x[kept], held.labels.take(kept), cuts)
        examples, at = (rows, None) if self.at is None else self.at[rows].unique(return_inverse=True)
        return replace(
            self,
            x=self.x[examples],
            labels=self.labels.take(rows),
            starts=starts,
            ids=(),
            public=self.public[:0],
            at=at,
            trusted=None,
            together=None,
            validation=held,
        )

    def pooled(self) -> Federation:
        """Return the same rows as if one site held them all."""
        held = self.validation and replace(self.validation, starts=(0, self.validation.starts[-1]))
        return replace(self, starts=(0, self.starts[-1]), sites=("pooled",), groups=(), validation=held)


def cut(starts: Sequence[int], sites: Collection[int]) -> tuple[Tensor, tuple[int, ...]]:
    """Return which rows some sites hold, and where each site's begin among these alone; the other sites have none."""
    held = frozenset(sites)
    ranges = [(a, b) if k in held else (a, a) for k, (a, b) in enumerate(pairwise(starts))]
    rows = torch.cat([torch.arange(a, b) for a, b in ranges])
    return rows, tuple(accumulate((b - a for a, b in ranges), initial=0))
