"""Warnings about a census, in sentences that name the sites and classes concerned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from imperfed.census.figures import Census, SiteCensus
from imperfed.core.labels import OneClass
from imperfed.report.words import many, per_cent

FEW = 10
"""The number of rows below which a site learns little and measures nothing."""
FAR = 0.5
"""The skew above which a site is unlike the others."""
MOSTLY = 0.9
"""The share of rows of one class from which accuracy says little."""
NAMED = 6
"""The most sites or classes named in one sentence."""


def warnings(census: Census, measured: bool) -> tuple[str, ...]:
    """Return all warnings, those about labels first; `measured`: whether models can be measured at all."""
    return tuple(
        sentence
        for part in (_missing(census), _classes(census), _sets(census), _sites(census), _repeats(census))
        for sentence in part
    ) + (() if measured else ("no row's true label is known, so nothing can be measured; declare `test` or `truth`",))


def _missing(census: Census) -> Iterator[str]:
    """Warn about missing labels."""
    if caution := census.kind.caution(census.known):
        yield caution
    if not census.kind.partial:
        return
    if len(census.sites) <= NAMED:
        for site in census.sites:
            never = _where(census, site.known.labelled == 0)
            if never and len(never) < len(census.classes):
                yield f"site {site.name} never annotates {listed(never)}"
    else:
        K = len(census.sites)
        at = {c: sum(bool(site.known.labelled[i]) for site in census.sites) for i, c in enumerate(census.classes)}
        some = sorted((n, name) for name, n in at.items() if 0 < n < K)
        if some:
            classes = listed([f"{name} at {n}" for n, name in some])
            yield f"{many(len(some), 'class is', 'classes are')} annotated at only some of {K} sites: {classes}"
    blank = [site.name for site in census.sites if not site.known.labelled.any()]
    if blank:
        yield f"{_sites_named(blank)} {'annotates' if len(blank) == 1 else 'annotate'} nothing at all"


def _classes(census: Census) -> Iterator[str]:
    """Warn about classes that cannot be learned."""
    known = census.known
    nowhere = _where(census, known.labelled == 0)
    if nowhere:
        yield f"nobody annotates {listed(nowhere)}: no method can learn it"
    absent = [name for name in _where(census, known.weight == 0) if name not in nowhere]
    if absent:
        yield f"class {listed(absent)} is at no site" + (" as a positive" if census.kind.partial else "")
    if lonely := _at_one_site(census):
        yield f"only one site holds {'class' if len(lonely) == 1 else 'classes'} {listed(lonely)}"
    if census.kind.settles and (largest := max(zip(known.weight.tolist(), census.classes, strict=True)))[0]:
        share, name = largest[0] / census.rows, largest[1]
        if MOSTLY <= share < 1:
            often = f"always answering {name} is right as often"
            yield f"{per_cent(share)} of all rows are {name}: {often}, so look at recall class by class, not accuracy"
    for site in census.sites if census.kind.settles and len(census.sites) <= NAMED else ():
        if len(census.classes) > 1 and site.largest is not None and site.largest[1] == 1:
            yield f"site {site.name} holds only one class, {site.largest[0]}"


def _at_one_site(census: Census) -> list[str]:
    """Return the classes that one of several sites holds, and which one; none where sites hold few classes anyway."""
    if len(census.sites) < 3 or census.kind.partial or (census.kind.several and issubclass(census.kind, OneClass)):
        return []
    held = [site.known.weight > 0 for site in census.sites]
    where = {name: [k for k, has in enumerate(held) if has[c]] for c, name in enumerate(census.classes)}
    lonely = [f"{name} (at {census.sites[at[0]].name})" for name, at in where.items() if len(at) == 1]
    return lonely if 2 * len(lonely) <= len(census.classes) else []


def id_warnings(census: Census, column: str, shared: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """Warn about the same ids at several sites."""
    if shared:
        a, b, n = shared[0]
        ids = many(n, "value is", "values are")
        more = f"; so do {many(len(shared) - 1, 'more pair', 'more pairs')} of sites" if len(shared) > 1 else ""
        yield (
            f"column {column}: {ids} at both {census.sites[a].name} and {census.sites[b].name}{more}: the same "
            "patients, or ids that start again at each site?"
        )


def _sets(census: Census) -> Iterator[str]:
    """Warn about candidate sets that say little."""
    sizes, C = census.sizes(), len(census.classes)
    if sizes.get(C):
        yield f"{many(sizes[C], 'row has', 'rows have')} all {C} classes as candidates, which says nothing"
    if set(sizes) == {1}:
        yield 'every set holds one candidate: labels are exact, write kind = "exact"'
    for a, b in census.inseparable[:NAMED]:
        yield f"{a} is never a candidate without {b}: candidate sets alone cannot tell them apart"


def _sites(census: Census) -> Iterator[str]:
    """Warn about sites that are small, or unlike the others."""
    small = [site for site in census.sites if site.rows < FEW]
    if len(small) <= NAMED:
        yield from (f"site {site.name} has {many(site.rows, 'row')}" for site in small)
    else:
        yield f"{len(small)} of {len(census.sites)} sites have fewer than {FEW} rows"
    far = [site for site in census.sites if site.skew is not None and site.skew > FAR]
    # Sites that know one of several classes per row often hold a single class, and are then always far.
    if len(census.sites) > 1 and far and not (census.kind.several and issubclass(census.kind, OneClass)):
        names = _sites_named([site.name for site in far]) if len(far) <= NAMED else f"{len(far)} sites"
        yield f"{names}: class shares differ from those of all sites together (distance above {FAR})"
    largest = max(census.sites, key=_rows)
    if len(census.sites) > 2 and largest.rows > 0.8 * census.rows:
        yield f"site {largest.name} holds {per_cent(largest.rows / census.rows)} of all rows"
    groups = {g: sum(site.groups[g] for site in census.sites) for g in census.sites[0].groups}
    if empty := [name for name, rows in groups.items() if not rows]:
        yield f"group {listed(empty)} is at no site"


def _repeats(census: Census) -> Iterator[str]:
    """Warn about the same inputs in several rows."""
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
        yield f"{many(repeats.contradicted, 'input occurs', 'inputs occur')} in several rows with different labels"
    if repeats.tested:
        rows = many(repeats.tested, "test row has", "test rows have")
        yield f"{rows} the same inputs as a training row: the same examples, or inputs too coarse to tell them apart"


def _where(census: Census, mask: Iterable[object]) -> list[str]:
    return [name for name, selected in zip(census.classes, mask, strict=True) if selected]


def _rows(site: SiteCensus) -> int:
    return site.rows


def _sites_named(names: Sequence[str]) -> str:
    return f"{'site' if len(names) == 1 else 'sites'} {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Join names with commas; only the first if there are many."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
