"""What a census should make its reader think of, in words: each sentence names the site and the class it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from imperfed.census.figures import Census, SiteCensus
from imperfed.core.labels import OneClass
from imperfed.report.words import many, per_cent

FEW = 10
"""Rows below which a site learns little and measures nothing."""
FAR = 0.5
"""Skew from which a site is unlike the others."""
NAMED = 6
"""Sites or classes named in a sentence before they are counted."""


def warnings(census: Census, measured: bool) -> tuple[str, ...]:
    """All sentences, those of labels first; `measured`: whether there is anything to measure models on."""
    return tuple(
        sentence
        for part in (_missing(census), _classes(census), _sets(census), _sites(census), _repeats(census))
        for sentence in part
    ) + (() if measured else ("no row's true label is known, so nothing can be measured; declare `test` or `truth`",))


def _missing(census: Census) -> Iterator[str]:
    """Labels that are not there."""
    if caution := census.kind.caution(census.known):
        yield caution
    if not census.kind.partial:
        return
    if len(census.sites) <= NAMED:
        for site in census.sites:
            never = _where(census, site.known.told == 0)
            if never and len(never) < len(census.classes):
                yield f"site {site.name} never annotates {listed(never)}"
    else:
        K = len(census.sites)
        at = {c: sum(bool(site.known.told[i]) for site in census.sites) for i, c in enumerate(census.classes)}
        some = sorted((n, name) for name, n in at.items() if 0 < n < K)
        if some:
            told = listed([f"{name} at {n}" for n, name in some])
            yield f"{many(len(some), 'class is', 'classes are')} annotated at some of {K} sites only: {told}"
    blank = [site.name for site in census.sites if not site.known.told.any()]
    if blank:
        yield f"{_sites_named(blank)} {'annotates' if len(blank) == 1 else 'annotate'} nothing at all"


def _classes(census: Census) -> Iterator[str]:
    """Classes that nobody can learn."""
    known = census.known
    nowhere = _where(census, known.told == 0)
    if nowhere:
        yield f"nobody annotates {listed(nowhere)}: no method can learn it"
    absent = [name for name in _where(census, known.weight == 0) if name not in nowhere]
    if absent:
        yield f"class {listed(absent)} is at no site" + (" as a positive" if census.kind.partial else "")
    for site in census.sites if census.kind.settles and len(census.sites) <= NAMED else ():
        if len(census.classes) > 1 and site.largest is not None and site.largest[1] == 1:
            yield f"site {site.name} holds one class only, {site.largest[0]}"


def _sets(census: Census) -> Iterator[str]:
    """Candidate sets that say little."""
    sizes, C = census.sizes(), len(census.classes)
    if sizes.get(C):
        yield f"{many(sizes[C], 'row has', 'rows have')} all {C} classes as candidates, which says nothing of the label"
    if set(sizes) == {1}:
        yield 'every set holds one candidate: labels are exact, write kind = "exact"'
    for a, b in census.inseparable[:NAMED]:
        yield f"{a} is never a candidate without {b}: candidate sets alone cannot tell them apart"


def _sites(census: Census) -> Iterator[str]:
    """Sites that are small, or unlike the others."""
    small = [site for site in census.sites if site.rows < FEW]
    if len(small) <= NAMED:
        yield from (f"site {site.name} has {many(site.rows, 'row')}" for site in small)
    else:
        yield f"{len(small)} of {len(census.sites)} sites have fewer than {FEW} rows"
    far = [site for site in census.sites if site.skew is not None and site.skew > FAR]
    # A site that knows one of a row's classes alone is often a site of one class, and always far.
    if len(census.sites) > 1 and far and not (census.kind.several and issubclass(census.kind, OneClass)):
        names = _sites_named([site.name for site in far]) if len(far) <= NAMED else f"{len(far)} sites"
        yield f"{names}: classes are spread otherwise than over all sites together (distance above {FAR})"
    largest = max(census.sites, key=_rows)
    if len(census.sites) > 2 and largest.rows > 0.8 * census.rows:
        yield f"site {largest.name} holds {per_cent(largest.rows / census.rows)} of all rows"
    groups = {g: sum(site.groups[g] for site in census.sites) for g in census.sites[0].groups}
    if empty := [name for name, rows in groups.items() if not rows]:
        yield f"group {listed(empty)} is at no site"


def _repeats(census: Census) -> Iterator[str]:
    """The same inputs in several rows."""
    repeats = census.repeats
    if any(repeats.within):
        at = [site.name for site, n in zip(census.sites, repeats.within, strict=True) if n]
        yield f"{many(sum(repeats.within), 'row repeats', 'rows repeat')} the inputs of an earlier row at {listed(at)}"
    if repeats.shared:
        a, b, n = repeats.shared[0]
        names = census.sites[a].name, census.sites[b].name
        rows = many(sum(repeats.elsewhere), "row has", "rows have")
        yield f"{rows} the same inputs as a row of another site; most are shared by {names[0]} and {names[1]} ({n})"
    if repeats.contradicted:
        yield f"{many(repeats.contradicted, 'input stands', 'inputs stand')} in several rows with different labels"
    if repeats.tested:
        rows = many(repeats.tested, "test row has", "test rows have")
        yield f"{rows} the same inputs as a training row: the same examples, or inputs too coarse to tell them apart"


def _where(census: Census, mask: Iterable[object]) -> list[str]:
    return [name for name, there in zip(census.classes, mask, strict=True) if there]


def _rows(site: SiteCensus) -> int:
    return site.rows


def _sites_named(names: Sequence[str]) -> str:
    return f"{'site' if len(names) == 1 else 'sites'} {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Names with commas, the first of them where there are many."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
