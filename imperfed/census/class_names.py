"""Warnings about the names of classes: one class under two names, and words for "no label" that became a class."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from imperfed.census.columns import BLANK_WORDS
from imperfed.census.figures import Census
from imperfed.data.files.problems import alike

SHORTEST = 5
"""The letters from which two names may differ by a typo."""
MOST = 200
"""The most classes whose names are compared."""
CLEAR_WORDS = BLANK_WORDS - {"none", "missing"}
"""Words for "no label". "None" is often a class of its own, and "missing" may be one, such as of a tooth."""


def name_warnings(census: Census) -> Iterator[str]:
    """Warn about names that stand for no class, or for the same class as another name."""
    blank = [name for name in census.classes if name.lower() in CLEAR_WORDS]
    if blank:
        asked = (
            f"class {blank[0]}: a label, or a word"
            if len(blank) == 1
            else (f"classes {', '.join(blank)}: labels, or words")
        )
        yield f"{asked} for none? If none, drop these rows, or name the classes that they may have as candidate sets"
    held = _sites_by_class(census)
    for first, second in combinations(census.classes[:MOST], 2):
        if _is_one_name(first, second, bool(held[first] & held[second])):
            yield f"classes {first} and {second}: one class under two names? Then give it one name at all sites"
    yield from _other_codes(census, held)


def _sites_by_class(census: Census) -> dict[str, set[int]]:
    """Return the numbers of the sites that hold each class."""
    weights = [site.known.weight.tolist() for site in census.sites]
    return {name: {k for k, weight in enumerate(weights) if weight[c]} for c, name in enumerate(census.classes)}


def _is_one_name(first: str, second: str, together: bool) -> bool:
    """Return whether names differ in case or blanks only or, if no site holds both, by a typo between letters."""
    if "".join(first.split()).lower() == "".join(second.split()).lower():
        return True
    letters = first.isalpha() and second.isalpha() and min(len(first), len(second)) >= SHORTEST
    return letters and not together and bool(alike(first, [second]))


def _other_codes(census: Census, held: dict[str, set[int]]) -> Iterator[str]:
    """Warn about a site with several classes, none of which is at any other site, though others share theirs."""
    if not census.kind.settles or len(census.sites) < 2:
        return
    for k, site in enumerate(census.sites):
        own = [name for name, sites in held.items() if k in sites]
        others = [name for name, sites in held.items() if sites - {k}]
        if len(own) > 1 and len(others) > 1 and not {*own} & {*others}:
            yield (
                f"site {site.name} names other classes ({', '.join(own[:3])}) than all other sites "
                f"({', '.join(others[:3])}): the same ones under other names?"
            )
