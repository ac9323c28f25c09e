"""The training data of all sites, and what else of data there is: nothing here is the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels import Exact, Labels


@dataclass(frozen=True)
class Trusted:
    """Labelled rows that only the server holds."""

    x: Tensor
    labels: Exact


TO_TRUST = (
    "set split.trusted, such as 0.05, where true labels are known; or name the rows yourself: trusted = "
    '"trusted.csv" in federation.toml, or the array `trusted` in an .npz file'
)
"""How rows come to the server, for messages."""


@dataclass(frozen=True)
class Attribute:
    """A sensitive attribute: columns of x that say to which of its groups a row may belong."""

    name: str
    values: tuple[str, ...]
    first: int
    """Group v has the column first + v."""

    def of(self, x: Tensor) -> Tensor:
        """The membership of every row in every group, as a view."""
        return x[:, self.first : self.first + len(self.values)]


@dataclass(frozen=True)
class Federation:
    """The training data of all sites, one after the other in one tensor. Holds no truth."""

    name: str
    x: Tensor
    """The examples: one a row, unless `at` says otherwise."""
    labels: Labels
    starts: tuple[int, ...]
    """Site k holds the rows starts[k] .. starts[k + 1] - 1."""
    sites: tuple[str, ...]
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    """A name for every row, stable from run to run."""
    public: Tensor
    """Unlabelled inputs that the server may look at; empty where there are none."""
    at: Tensor | None = None
    """Which example each row is, where an example may sit at several sites; None: row i is example i."""
    trusted: Trusted | None = None
    groups: tuple[int, ...] = ()
    """The group of every site; sites of one group share a model. Empty: one group."""
    attribute: Attribute | None = None
    annotators: Tensor | None = None
    """bool [K, C], which classes each site annotates, where rows are elsewhere and cannot tell; None: they can.

    At a real site: a row for itself, and one for all sites together.
    """

    @property
    def elsewhere(self) -> bool:
        """Whether the rows are at the sites themselves and none of them is here."""
        return len(self.labels) == 0

    def check(self) -> Federation:
        """The door: every invariant that training relies on, each problem named with its site and row."""
        rows = len(self.x) if self.at is None else len(self.at)
        if rows != len(self.labels) or self.starts[-1] != rows:
            raise DataError(
                f"{self.name}: {rows} examples but {len(self.labels)} labels and {self.starts[-1]} in sites"
            )
        for k, site in enumerate(self.sites):
            start, stop = self.starts[k], self.starts[k + 1]
            if stop <= start:
                raise DataError(
                    f"{self.name}, {site}: the site has no training rows; use fewer sites or another partition"
                )
            x = self.inputs(start, stop)
            finite = torch.isfinite(x.flatten(1)).all(1)
            if not finite.all():
                row = int((~finite).nonzero()[0])
                column = int((~torch.isfinite(x[row].flatten())).nonzero()[0])
                raise DataError(
                    f"{self.name}, {site}, row {row} (id {self.ids[start + row]}), feature {column}: not a finite "
                    f"number ({int((~finite).sum())} such rows at this site); fill or drop them first"
                )
            self.labels.between(start, stop).check(f"{self.name}, {site}")
        return self

    def sizes(self) -> list[int]:
        """The number of rows at each site."""
        return [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]

    def inputs(self, start: int, stop: int) -> Tensor:
        """The inputs of the rows start .. stop - 1; a view, unless examples sit at several sites."""
        return self.x[start:stop] if self.at is None else self.x[self.at[start:stop]]

    def to(self, device: torch.device) -> Federation:
        """The same data on a device."""
        trusted = self.trusted and Trusted(self.trusted.x.to(device), self.trusted.labels.to(device))
        return replace(
            self,
            x=self.x.to(device),
            labels=self.labels.to(device),
            public=self.public.to(device),
            at=None if self.at is None else self.at.to(device),
            trusted=trusted,
        )

    def pooled(self) -> Federation:
        """The same rows as if one site held them all."""
        return replace(self, starts=(0, self.starts[-1]), sites=("pooled",), groups=())
