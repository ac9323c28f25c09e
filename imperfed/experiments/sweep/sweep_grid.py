"""The grid of a sweep, from words such as `lr=0.01,0.1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from imperfed.core.errors import UsageError
from imperfed.data.held_out import share_at_sites
from imperfed.experiments.config import Config
from imperfed.experiments.run_data import same_data

HELD_OUT = 0.15
"""The share of its rows that each site holds out, if the settings do not say."""
Cell = Mapping[str, str]
"""One combination: a value for every setting of the grid."""


def grid_of(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values to try of every setting; values that are lists themselves are separated by semicolons."""
    grid: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, equals, text = (part.strip() for part in word.partition("="))
        values = tuple(value.strip() for value in text.split(";" if ";" in text else ",") if value.strip())
        if not (key and equals and values):
            raise UsageError(f"a sweep takes KEY=VALUE,VALUE,...; got {word!r}")
        if key in grid:
            raise UsageError(f"{key} is named twice; put all its values behind one {key}=")
        if len(set(values)) < len(values):
            raise UsageError(f"{word}: a value is named twice")
        grid[key] = values
    if not grid:
        raise UsageError("name at least one setting and its values, such as lr=0.01,0.03,0.1")
    return grid


def cells_of(grid: Mapping[str, Sequence[str]]) -> list[Cell]:
    """Return every combination, the last setting changing fastest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def named(cell: Cell) -> str:
    """Return a combination in words."""
    return " ".join(f"{key}={value}" for key, value in cell.items())


def configs_of(cells: Sequence[Cell], seeds: Sequence[int], make: Callable[[Cell, int], Config]) -> list[list[Config]]:
    """Return the settings of every trial, by combination and seed; refuse those whose scores cannot be compared."""
    configs = [[holding_out(make(cell, seed)) for seed in seeds] for cell in cells]
    for cell, of_cell in zip(cells, configs, strict=True):
        for first, config in zip(configs[0], of_cell, strict=True):
            if not same_data(first, config) or (first.attack, first.repair) != (config.attack, config.repair):
                raise UsageError(
                    f"{named(cell)}: changes the data or their labels, so that scores on rows held out cannot be "
                    "compared; sweep settings of training, and give the data with --set"
                )
    return configs


def holding_out(config: Config) -> Config:
    """Return the settings with a share of rows that sites hold out."""
    share = config.split.validation or HELD_OUT
    held = replace(config, split=replace(config.split, validation=share))
    if not share_at_sites(held.split):
        raise UsageError("with partition = label no site holds rows out, so that a sweep has nothing to choose by")
    return held
