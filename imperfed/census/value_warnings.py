"""Warnings about the values of inputs, in sentences that name the sites, columns and cells concerned."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from imperfed.census.input_values import ColumnValues, OddCell, SiteValues
from imperfed.census.warnings import listed
from imperfed.report.words import many, per_cent

FEW = 10
"""The number of values below which a column of a site is not judged."""
CODES = frozenset(
    {0.0, -1.0, -9.0, *(float(sign * int(d * n)) for d in "789" for n in range(2, 8) for sign in (1, -1))}
)
"""Numbers that stand for "no value" in many files: 99, -999, 88888 ..., and 0 or -1 apart from all other values."""
MOSTLY_BLANK = 0.5
UNLIKE = 2.5
"""How many times the width of the quartiles, on a logarithmic scale, two medians may be apart."""
SHIFTED = 5.0
"""The same for columns with negative values, on the scale of the values themselves."""
LEAST_RATIO = 1.5
UNITS = {
    1000.0: "g and kg",
    100.0: "cm and m",
    10.0: "mm and cm",
    2.2046: "lb and kg",
    2.54: "cm and inches",
    0.3048 * 100: "cm and feet",
    60.0: "minutes and hours",
    24.0: "hours and days",
    7.0: "days and weeks",
    12.0: "months and years",
    365.25: "days and years",
    18.02: "mg/dl and mmol/l (glucose)",
    88.4: "µmol/l and mg/dl (creatinine)",
    7.50: "mmHg and kPa",
    4.184: "kJ and kcal",
}
"""Ratios of the same values in two units."""
NEAR = 1.15
"""The ratio of two ratios up to which they are taken to be the same."""
DEGREES = 0.03
"""The relative error up to which one median is the other in Fahrenheit."""
STRANGE = "which their spread does not explain: is it the same quantity in the same unit?"


def value_warnings(sites: Sequence[SiteValues]) -> tuple[str, ...]:
    """Return all warnings about input values; those about single cells first."""
    codes = _codes(sites)
    odd = [cell for site in sites for cell in site.odd if cell.value not in codes.get(cell.column, {})]
    parts = (
        _told_codes(codes),
        _told_cells(odd),
        *(_units([(s.site, s.numbers[name]) for s in sites]) for name in sites[0].numbers),
        _blanks(sites),
        _constants(sites),
    )
    return tuple(sentence for part in parts for sentence in part)


# -- codes for "no value" ----------------------------------------------------------------------------------------------


def _codes(sites: Sequence[SiteValues]) -> dict[str, dict[float, dict[str, int]]]:
    """Return column -> value -> site -> rows of numbers that look like codes for a missing value."""
    found: dict[str, dict[float, dict[str, int]]] = {}
    for site in sites:
        for name, column in site.numbers.items():
            for end in (column.low, column.high) if column.known >= FEW and column.distinct > 2 else ():
                lonely = end.gap > column.box and (end.rows > 1 or end.gap > FEW * column.box)
                if end.value in CODES and lonely and column.box > 0:
                    found.setdefault(name, {}).setdefault(end.value, {})[site.site] = end.rows
    return found


def _told_codes(codes: dict[str, dict[float, dict[str, int]]]) -> Iterator[str]:
    for name, values in codes.items():
        for value, at in values.items():
            rows = many(sum(at.values()), "row")
            word = f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
            yield (
                f'column {name}: {word} in {rows} of {listed([*at])} looks like a code for "no value"; if it is, '
                f'add "{word}" to inputs.missing, and {name} = "median" to [inputs.fill]'
            )


# -- single cells ------------------------------------------------------------------------------------------------------


def _told_cells(cells: Sequence[OddCell]) -> Iterator[str]:
    by_column: dict[str, list[OddCell]] = {}
    for cell in cells:
        by_column.setdefault(cell.column, []).append(cell)
    for name, odd in by_column.items():
        odd = sorted(odd, key=lambda cell: -abs(cell.value))
        low, high = odd[0].usual
        places = listed([f"{cell.value:g} ({cell.place})" for cell in odd])
        yield f"column {name}: {places}, where nine of ten values lie between {low:g} and {high:g}; fix or blank " + (
            "the cell" if len(odd) == 1 else "the cells"
        )


# -- units -------------------------------------------------------------------------------------------------------------


def _units(column: Sequence[tuple[str, ColumnValues]]) -> Iterator[str]:
    """Warn about sites whose values lie apart from those of the others by more than their spread explains."""
    judged = [(site, values) for site, values in column if values.known >= FEW and values.distinct > 2]
    if len(judged) < 2:
        return
    middle = statistics.median_low(values.quartiles[1] for _, values in judged)
    usual = next(values for _, values in judged if values.quartiles[1] == middle)
    apart: dict[tuple[str, str], list[str]] = {}
    for site, values in judged:
        if difference := _difference(values, usual):
            apart.setdefault(difference, []).append(f"{site} ({values.quartiles[1]:g})")
    for (relation, remark), sites in apart.items():
        yield f"column {usual.column}: the median at {listed(sites)} is {relation} of most sites ({middle:g}), {remark}"


def _difference(values: ColumnValues, usual: ColumnValues) -> tuple[str, str] | None:
    """Return in words how a median differs from the usual one, and why; None if the spread of values explains it."""
    (a1, a, a3), (b1, b, b3) = values.quartiles, usual.quartiles
    if min(a1, b1) <= 0:
        width = max(values.box, usual.box)
        return ("far from that", STRANGE) if width > 0 and abs(a - b) > SHIFTED * width else None
    ratio, width = max(a, b) / min(a, b), max(math.log(a3 / a1), math.log(b3 / b1))
    if math.log(ratio) <= max(math.log(LEAST_RATIO), UNLIKE * width):
        return None
    if abs(1.8 * min(a, b) + 32 - max(a, b)) < DEGREES * max(a, b):
        return "in other degrees than that", "as between Celsius and Fahrenheit: convert one of them"
    unit = min(UNITS, key=lambda known: abs(math.log(known / ratio)))
    fits = abs(math.log(unit / ratio)) < math.log(NEAR)
    ratio = unit if fits else ratio
    relation = f"{ratio:,.4g} times that" if a > b else f"1/{ratio:,.4g} of that"
    return relation, f"as between {UNITS[unit]}: convert one of them" if fits else STRANGE


# -- blanks and constants ----------------------------------------------------------------------------------------------


def _blanks(sites: Sequence[SiteValues]) -> Iterator[str]:
    for name in (*sites[0].numbers, *sites[0].words):
        every = [(s.site, s.numbers.get(name) or s.words[name]) for s in sites]
        mostly = [f"{site} ({per_cent(c.blanks / c.rows)})" for site, c in every if c.blanks > MOSTLY_BLANK * c.rows]
        if mostly:
            yield f"column {name} is mostly blank at {listed(mostly)}"


def _constants(sites: Sequence[SiteValues]) -> Iterator[str]:
    """Warn about columns with one value at every site, and about those with one value at some sites only."""
    useless, partly = [], []
    for name in sites[0].numbers:
        at = [s.site for s in sites if s.numbers[name].distinct == 1 and s.numbers[name].known >= FEW]
        values = {s.numbers[name].low.value for s in sites if s.numbers[name].known}
        if len(values) == 1 and len(at) == len(sites):
            useless.append(name)
        elif at:
            partly.append(f"{name} at {listed(at)}")
    if useless:
        yield f"the same value in all rows, which says nothing: {listed(useless)}"
    if partly:
        yield f"the same value in all rows of a site: {'; '.join(partly[:6])}"
