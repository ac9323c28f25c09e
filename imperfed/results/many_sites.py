"""What pages and tables list of very many sites: the worst and the best of them. The files of a run hold them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

MANY = 1000
"""The number of sites above which not every one is listed."""
AT_EACH_END = 20
"""How many of the worst are listed then, and how many of the best."""


class Measured(Protocol):
    """A site with the figure by which it is ranked; None where it has none."""

    @property
    def value(self) -> float | None: ...


S = TypeVar("S", bound=Measured)


def listed_of(sites: Sequence[S]) -> Sequence[S]:
    """Return the sites as they are; of very many the worst and the best, in the order of their figure."""
    if len(sites) <= MANY:
        return sites
    measured = sorted((site for site in sites if site.value is not None), key=lambda site: site.value or 0.0)
    if len(measured) <= 2 * AT_EACH_END:
        return measured or sites[: 2 * AT_EACH_END]
    return [*measured[:AT_EACH_END], *measured[-AT_EACH_END:]]


def which_of(listed: int, sites: int) -> str:
    """Return which sites are listed, in words."""
    if listed == sites:
        return f"All {sites} sites, one by one"
    if listed == 2 * AT_EACH_END:
        return f"The {AT_EACH_END} worst and the {AT_EACH_END} best of {sites} sites"
    return f"{listed} of {sites} sites"
