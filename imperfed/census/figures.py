"""The census: counts of labels per site and class, candidate sets, and the skew of sites. Nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from imperfed.census.repeats import Repeats, find_repeats
from imperfed.core.labels import ClassCounts, Labels

MOST_PAIRS = 10
"""The most pairs of classes that are named."""
ENOUGH = 5
"""The fewest rows for which a class that never occurs without another is reported."""


@dataclass(frozen=True)
class SiteRows:
    """The data of one site that the census counts."""

    name: str
    x: Tensor
    labels: Labels
    groups: Tensor | None = None
    """[n, V]: 1 for the groups of a sensitive attribute to which a row may belong."""


@dataclass(frozen=True)
class SiteCensus:
    """The figures of one site."""

    name: str
    rows: int
    known: ClassCounts
    sizes: dict[int, int]
    """The number of rows by the size of their candidate set; empty for other kinds of labels."""
    largest: tuple[str, float] | None
    """The most frequent class, and its share among the rows that say anything about it."""
    skew: float | None
    """The Jensen-Shannon distance of the class shares to those of all sites, 0 (alike) .. 1 (nothing in common)."""
    groups: dict[str, int] = field(default_factory=dict)
    """The number of rows that may belong to each group of the sensitive attribute."""
    ambiguous: int = 0
    """The number of rows that may belong to several groups."""


@dataclass(frozen=True)
class Census:
    """The figures of a federation."""

    name: str
    kind: type[Labels]
    classes: tuple[str, ...]
    sites: tuple[SiteCensus, ...]
    known: ClassCounts
    pairs: tuple[tuple[str, str, int], ...]
    """Classes that occur together in a candidate set (or are positive together), the most frequent pairs first."""
    inseparable: tuple[tuple[str, str], ...]
    """Pairs of classes of which the first is never a candidate without the second: nothing distinguishes the two."""
    repeats: Repeats

    @property
    def rows(self) -> int:
        """The number of rows of all sites."""
        return sum(site.rows for site in self.sites)

    def sizes(self) -> dict[int, int]:
        """Return the number of rows of all sites by the size of their candidate set."""
        every = sorted({size for site in self.sites for size in site.sizes})
        return {size: sum(site.sizes.get(size, 0) for site in self.sites) for size in every}


def take(
    name: str,
    classes: tuple[str, ...],
    sites: Sequence[SiteRows],
    key: bytes,
    groups: tuple[str, ...] = (),
    tests: Sequence[Tensor] = (),
) -> Census:
    """Return the census of these sites. Rows are compared by digests under `key`, as real sites could do."""
    known = [site.labels.counts() for site in sites]
    every, labels = ClassCounts.total(known), [site.labels for site in sites]
    return Census(
        name,
        type(sites[0].labels),
        classes,
        tuple(count(site, own, every, classes, groups) for site, own in zip(sites, known, strict=True)),
        every,
        *together(labels, classes),
        find_repeats([site.x for site in sites], labels, tests, key),
    )


def count(
    site: SiteRows, known: ClassCounts, every: ClassCounts, classes: tuple[str, ...], groups: tuple[str, ...]
) -> SiteCensus:
    """Return the figures of one site, compared with all sites."""
    rate = known.rate().nan_to_num(0.0)
    members = torch.zeros(0, len(groups)) if site.groups is None else site.groups
    return SiteCensus(
        site.name,
        len(site.labels),
        known,
        site.labels.set_sizes(),
        (classes[int(rate.argmax())], float(rate.max())) if bool(rate.any()) else None,
        skew(known, every),
        dict(zip(groups, members.sum(0).int().tolist(), strict=True)),
        int((members.sum(1) > 1).sum()),
    )


def skew(site: ClassCounts, every: ClassCounts) -> float | None:
    """Return sqrt((KL(p | m) + KL(q | m)) / 2), m = (p + q) / 2, in bits, over classes the site says anything about.

    If sites annotate different classes, rates are compared, so that not annotating a class is no skew.
    """
    known = site.labelled > 0
    p, q = site.rate()[known], every.rate()[known]
    if not p.any():
        return None
    p, q = p / p.sum(), q / q.sum()
    m = (p + q) / 2
    divergence = (torch.xlogy(p, p / m).nansum() + torch.xlogy(q, q / m).nansum()) / (2 * math.log(2))
    return math.sqrt(max(0.0, float(divergence)))


def together(
    labels: Sequence[Labels], classes: tuple[str, ...]
) -> tuple[tuple[tuple[str, str, int], ...], tuple[tuple[str, str], ...]]:
    """Return pairs of classes by the number of rows that name both; and, if one class is true, inseparable ones."""
    matrices = [both for both in (part.co_occurrence() for part in labels) if both is not None]
    if not matrices:
        return (), ()
    both = torch.stack(matrices).sum(0)
    first, second = torch.triu_indices(len(classes), len(classes), 1)
    often = both[first, second].sort(descending=True, stable=True)
    named = zip(often.indices[:MOST_PAIRS].tolist(), often.values[:MOST_PAIRS].tolist(), strict=True)
    pairs = tuple((classes[first[i]], classes[second[i]], n) for i, n in named if n)
    if labels[0].several:
        return pairs, ()
    rows = both.diagonal()
    bound = ((both == rows[:, None]) & (rows[:, None] >= ENOUGH)).fill_diagonal_(False).nonzero().tolist()
    return pairs, tuple((classes[a], classes[b]) for a, b in bound)
