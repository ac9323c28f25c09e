"""The values of the inputs, site by site and column by column: blanks, quartiles, extremes and distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.data.files.declaration import Inputs
from imperfed.data.files.problems import row_name
from imperfed.data.files.reading import SiteReading
from imperfed.data.files.rows import FileRows
from imperfed.data.moments import usual_range

OUTLIER = 10.0
"""How many times the range of a site's middle 90 % a value may be away from its median before it is named."""
MOST_OUTLIERS = 0.005
"""The largest share of outliers among a column's values; where there are more, the column just has a long tail."""
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class End:
    """The smallest or the largest value of a column."""

    value: float
    rows: int
    """The number of rows that have it."""
    gap: float
    """The distance to the next value; 0 if there is no other."""


@dataclass(frozen=True)
class ColumnValues:
    """The values of one column of numbers at one site. All figures are NaN if every cell is blank."""

    column: str
    rows: int
    blanks: int
    distinct: int
    low: End
    high: End
    quantiles: tuple[float, ...]
    """At `LEVELS`."""

    @property
    def known(self) -> int:
        """The number of cells that are not blank."""
        return self.rows - self.blanks

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The first quartile, the median and the third quartile."""
        return self.quantiles[1], self.quantiles[2], self.quantiles[3]

    @property
    def box(self) -> float:
        """The distance of the quartiles."""
        return self.quantiles[3] - self.quantiles[1]


@dataclass(frozen=True)
class ColumnWords:
    """The categories of one column of words at one site."""

    column: str
    rows: int
    blanks: int
    counts: dict[str, int]


@dataclass(frozen=True)
class OddCell:
    """A number that lies far from all others of its column."""

    site: str
    place: str
    """File and line or row."""
    column: str
    value: float
    usual: tuple[float, float]
    """The range of the middle 90 % of the site's values."""


@dataclass(frozen=True)
class SiteValues:
    """The input values of one site."""

    site: str
    numbers: dict[str, ColumnValues] = field(default_factory=dict)
    words: dict[str, ColumnWords] = field(default_factory=dict)
    odd: tuple[OddCell, ...] = ()


def look_at_values(sites: Sequence[SiteReading], inputs: Inputs) -> tuple[SiteValues, ...]:
    """Return the values of the declared columns of a table at all sites; of other inputs nothing is said."""
    return tuple(_of_site(site, inputs) for site in sites)


def _of_site(site: SiteReading, inputs: Inputs) -> SiteValues:
    x, columns = site.rows.x, inputs.numeric
    if not (columns or inputs.categorical):
        return SiteValues(site.name)
    ordered = np.ascontiguousarray(x[:, : len(columns)].numpy().T)
    ordered.sort(1)  # blanks, which are NaN, come last
    numbers = {name: _numbers(name, values) for name, values in zip(columns, ordered, strict=True)}
    words, first = {}, len(columns)
    for name, categories in inputs.categorical.items():
        part = x[:, first : first + len(categories)]
        counts = part.nansum(0).int().tolist()
        words[name] = ColumnWords(
            name, len(x), int(part[:, 0].isnan().sum()), dict(zip(categories, counts, strict=True))
        )
        first += len(categories)
    return SiteValues(site.name, numbers, words, _odd_cells(site.name, site.rows, numbers))


def _numbers(name: str, ordered: npt.NDArray[np.float32]) -> ColumnValues:
    blanks = int(np.isnan(ordered).sum())
    values = ordered[: len(ordered) - blanks]
    if not len(values):
        nothing = End(np.nan, 0, 0.0)
        return ColumnValues(name, len(ordered), blanks, 0, nothing, nothing, (np.nan,) * len(LEVELS))
    steps = values[1:] != values[:-1]  # True where a new value follows
    distinct = int(np.count_nonzero(steps)) + 1
    first, last = _decimal(values[0]), _decimal(values[-1])
    if distinct == 1:
        low = high = End(first, len(values), 0.0)
    else:
        lowest, highest = int(steps.argmax()) + 1, int(steps[::-1].argmax()) + 1  # the number of rows
        low = End(first, lowest, _decimal(values[lowest]) - first)
        high = End(last, highest, last - _decimal(values[-highest - 1]))
    at = [round(level * (len(values) - 1)) for level in LEVELS]
    return ColumnValues(name, len(ordered), blanks, distinct, low, high, tuple(map(_decimal, values[at])))


def _decimal(value: np.float32) -> float:
    """Return the shortest decimal number that is read as this value: 43.9 and not 43.900001525878906."""
    return float(str(value))


def _odd_cells(site: str, rows: FileRows, numbers: dict[str, ColumnValues]) -> tuple[OddCell, ...]:
    """Return the outliers of a site, unless a column has so many that its tail is long."""
    x = rows.x[:, : len(numbers)]
    middle, reach = usual_range(x)
    ends = torch.tensor([[column.low.value, column.high.value] for column in numbers.values()]).reshape(-1, 2).T
    columns = _is_far(ends, middle, reach).any(0).nonzero().flatten()  # few or none, so most cells are not looked at
    far = _is_far(x[:, columns], middle[columns], reach[columns])
    far &= far.sum(0) <= (MOST_OUTLIERS * len(x) + 1)
    cells = []
    for row, place in far.nonzero().tolist():
        j = int(columns[place])
        column = [*numbers.values()][j]
        file, number = rows.place(row)
        name = file.name
        usual = column.quantiles[0], column.quantiles[-1]
        value = _decimal(np.float32(x[row, j].item()))
        place = name if number is None else f"{name}, {row_name(file, number)}"
        cells.append(OddCell(site, place, column.column, value, usual))
    return tuple(cells)


def _is_far(x: Tensor, middle: Tensor, reach: Tensor) -> Tensor:
    return ((x - middle).abs() > OUTLIER * reach) & (reach > 0)


def shared_ids(sites: Sequence[SiteReading]) -> tuple[tuple[int, int, int], ...]:
    """Return pairs of sites by the number of ids that both hold, the most first."""
    import pyarrow

    from imperfed.census.repeats import shared

    named = [(k, site.rows.names.take(site.rows.at)) for k, site in enumerate(sites) if site.rows.names is not None]
    if len(named) < 2:
        return ()
    arrays = [names.combine_chunks() if isinstance(names, pyarrow.ChunkedArray) else names for _, names in named]
    codes = pyarrow.concat_arrays(arrays).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    tag = torch.from_numpy(codes.astype(np.int64))
    site = torch.tensor([k for k, _ in named]).repeat_interleave(torch.tensor([len(names) for _, names in named]))
    several = tag.bincount()[tag] > 1
    return shared(tag[several], site[several], len(sites))
